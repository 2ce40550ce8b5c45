// Adds to every page a button that copies a command or the lines of an advice; what scrolls can be scrolled with the keys.
(() => {
  for (const box of document.querySelectorAll(".command")) {
    const button = Object.assign(document.createElement("button"), { textContent: words("Copy"), className: "copy" });
    button.type = "button";
    button.addEventListener("click", () => {
      const code = box.querySelector("code");
      const done = () => {
        button.textContent = words("Copied");
        setTimeout(() => (button.textContent = words("Copy")), 1500);
      };
      const select = () => {
        getSelection().selectAllChildren(code);
        button.textContent = words("Selected");
      };
      if (navigator.clipboard) navigator.clipboard.writeText(code.textContent).then(done, select);
      else select();
    });
    box.append(button);
  }
})();
// What is wider than the window can be scrolled by keyboard too: it takes the focus where, and as long as, it scrolls.
(() => {
  const watch = new ResizeObserver((seen) => {
    for (const { target } of seen) {
      const box = target.closest(".scroll, .tall");
      if (!box || box.dataset.focus === "own") continue;
      if (box.scrollWidth > box.clientWidth || box.scrollHeight > box.clientHeight) box.tabIndex = 0;
      else box.removeAttribute("tabindex");
    }
  });
  for (const box of document.querySelectorAll(".scroll, .tall")) {
    if (box.hasAttribute("tabindex")) box.dataset.focus = "own";
    watch.observe(box);
    if (box.firstElementChild) watch.observe(box.firstElementChild);
  }
})();
