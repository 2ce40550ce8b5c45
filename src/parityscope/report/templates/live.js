// The list of studies: what is being made just now, how far the folder was read, and whether there is more than the page shows.
(() => {
  const EVERY_MS = 2500, doing = document.getElementById("doing"), list = doing.querySelector("ul"), reading = document.getElementById("reading");
  let shown = JSON.parse(document.getElementById("live-data").textContent);
  const add = (parent, name, text, css) => {
    const element = document.createElement(name);
    element.textContent = text;
    if (css) element.className = css;
    return parent.appendChild(element);
  };
  const states = () => ({ running: words("being made"), interrupted: words("interrupted"), failed: words("not compared") });
  const names = { running: "incomplete", interrupted: "incomplete", failed: "beyond" };
  const draw = (held) => {
    doing.hidden = !held.doing.length;
    list.replaceChildren(...held.doing.map((one) => {
      const item = document.createElement("li"), head = add(item, "strong", one.name);
      head.setAttribute("translate", "no");
      item.append(" ");
      add(item, "span", states()[one.state], `badge ${names[one.state]}`);
      item.append(" ");
      add(item, "span", one.began, "quiet").setAttribute("translate", "no");
      for (const line of one.told) add(item, "span", line, "told");
      if (one.line) add(item, "p", one.line);
      return item;
    }));
    const told = held.read < held.wanted ? words("{0} of {1} studies are read", held.read, held.wanted) : "";
    if (held.newest !== shown.newest) {
      reading.textContent = `${told} `;
      add(reading, "a", words("Something has changed: show it")).href = location.href;
    } else reading.textContent = told;
  };
  const look = async () => {
    if (document.hidden) return;
    try {
      const answer = await fetch("/doing", { headers: { Accept: "application/json" } });
      if (answer.ok) draw(await answer.json());
    } catch { /* the server has ended; the next look tells */ }
  };
  draw(shown);
  addEventListener("language", () => draw(shown));
  setInterval(look, EVERY_MS);
})();
