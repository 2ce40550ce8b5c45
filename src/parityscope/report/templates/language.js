// Changes the page's language in place: each run of text and each spoken attribute by its pair, names aside. `words` is what the
// other scripts say; what they add to the page later is changed as it comes.
"use strict";
const tongue = JSON.parse(document.getElementById("language-data").textContent);
const words = (text, ...values) => {
  const fill = (said) => values.reduce((so_far, value, at) => so_far.replace(`{${at}}`, () => value), said);
  const own = fill(text), other = fill(tongue.pairs[text] ?? text);
  if (own !== other) tongue.pairs[own] = other;
  return tongue.now === tongue.own ? own : other;
};
(() => {
  const SPOKEN = ["aria-label", "placeholder", "title"], back = () => new Map(Object.entries(tongue.pairs).map(([own, other]) => [other, own]));
  const was = new WeakMap();  // the English of a text that was changed here: two texts may be one in the other language
  const named = (element) => element?.closest("code, pre, script, style, [translate=no]");
  const known = (text, mine) => (tongue.now === tongue.own ? mine ?? tongue.back?.get(text) ?? text : tongue.pairs[text] ?? text);
  const change_text = (node) => {
    const text = node.data.replace(/\s+/g, " ").trim();
    if (!text || named(node.parentElement)) return;
    const mine = was.get(node), said = known(text, mine?.said === text ? mine.own : undefined);
    if (said === text) return;
    was.set(node, { own: text, said });
    node.data = node.data.replace(/^(\s*)[^]*?(\s*)$/, (_, lead, tail) => lead + said + tail);
  };
  const change_element = (element) => {
    if (named(element)) return;
    for (const name of SPOKEN) {
      const text = element.getAttribute(name), said = text && known(text);
      if (said !== text) element.setAttribute(name, said);
    }
  };
  const change = (root) => {
    if (root.nodeType === Node.TEXT_NODE) return change_text(root);
    if (root.nodeType !== Node.ELEMENT_NODE) return;
    change_element(root);
    const walk = document.createTreeWalker(root, NodeFilter.SHOW_ELEMENT | NodeFilter.SHOW_TEXT);
    while (walk.nextNode()) (walk.currentNode.nodeType === Node.TEXT_NODE ? change_text : change_element)(walk.currentNode);
  };
  const button = Object.assign(document.createElement("button"), { type: "button", id: "language" });
  const speak = (now) => {
    tongue.now = now;
    tongue.back = now === tongue.own ? back() : null;
    document.documentElement.lang = now;
    change(document.documentElement);
    name_button();
    dispatchEvent(new Event("language"));
  };
  const name_button = () => {
    const other = Object.keys(tongue.names).find((code) => code !== tongue.now);
    button.textContent = tongue.names[other];
    button.lang = other;
    button.setAttribute("translate", "no");
    button.onclick = () => {
      speak(other);
      try {
        localStorage.setItem("parityscope-language", other);
      } catch { /* a page that is opened as a file may not remember */ }
    };
  };
  name_button();
  (document.querySelector("header .wide") ?? document.querySelector("header, main")).prepend(button);
  new MutationObserver((seen) => {
    if (tongue.now !== tongue.own) for (const { addedNodes } of seen) addedNodes.forEach(change);
  }).observe(document.body, { childList: true, subtree: true });
  let kept = null;
  try {
    kept = localStorage.getItem("parityscope-language");
  } catch { /* not remembered */ }
  if (kept in tongue.names && kept !== tongue.now) addEventListener("load", () => speak(kept));
})();
