// Adds to a page that is complete without it: sorting and filtering the table, a tooltip on the depth chart.
"use strict";
(() => {
  const all = (selector, within = document) => Array.from(within.querySelectorAll(selector));
  const make = (tag, text, name) => Object.assign(document.createElement(tag), { textContent: text, className: name || "" });

  const table = document.getElementById("all");
  if (table) {
    const body = table.tBodies[0];
    const rows = Array.from(body.rows);
    const key = (row, column) => {
      const cell = row.cells[column];
      return "key" in cell.dataset ? cell.dataset.key : cell.textContent;
    };
    const form = document.getElementById("filter");
    const more = form.elements.more;
    const atOnce = rows.filter((row) => !row.classList.contains("later")).length;
    let everything = false;
    const limit = () => {
      let shown = 0;
      for (const row of body.rows) {
        shown += row.hidden ? 0 : 1;
        row.classList.toggle("later", !everything && shown > atOnce);
      }
      more.hidden = everything || shown <= atOnce;
      const of = shown === rows.length ? "" : ` of ${rows.length.toLocaleString("en")}`;
      const first = more.hidden ? "" : `, the first ${atOnce} shown`;
      form.querySelector("output").textContent = `${shown.toLocaleString("en")}${of} tensors${first}`;
    };
    more.addEventListener("click", () => {
      everything = true;
      limit();
    });
    const sort = (header, column) => {
      const words = "text" in header.dataset;
      const was = header.getAttribute("aria-sort");
      const down = was ? was === "ascending" : !words && column > 0;
      const compare = words
        ? (a, b) => a.key.localeCompare(b.key, "en", { numeric: true })
        : (a, b) => (a.number === b.number ? 0 : a.number - b.number);
      const keyed = rows.map((row, place) => {
        const text = key(row, column);
        return { row, place, key: text, number: parseFloat(text), absent: !words && Number.isNaN(parseFloat(text)) };
      });
      keyed.sort((a, b) => a.absent - b.absent || (down ? compare(b, a) : compare(a, b)) || a.place - b.place);
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      header.setAttribute("aria-sort", down ? "descending" : "ascending");
      body.append(...keyed.map((entry) => entry.row));
      limit();
    };
    Array.from(table.tHead.rows[0].cells).forEach((header, column) => {
      const button = make("button", header.textContent);
      button.type = "button";
      header.replaceChildren(button);
      button.addEventListener("click", () => sort(header, column));
    });

    const texts = rows.map((row) => `${row.cells[1].textContent} ${row.cells[2].textContent}`.toLowerCase());
    const filter = () => {
      const wanted = form.elements.text.value.trim().toLowerCase();
      rows.forEach((row, place) => {
        const worse = !form.elements.worse.checked || parseFloat(key(row, 4)) > 1e-3;
        row.hidden = !(worse && texts[place].includes(wanted));
      });
      limit();
    };
    form.addEventListener("input", filter);
    form.addEventListener("submit", (event) => event.preventDefault());
    form.hidden = false;

    const start = all("th", table.tHead).findIndex((header) => header.textContent === "introduced");
    const useful = rows.some((row) => key(row, start) !== "");
    sort(table.tHead.rows[0].cells[useful ? start : 3], useful ? start : 3);
  }

  // A drawing that is wider than the screen starts at what it is about: the first mark in it.
  for (const box of all(".chart")) {
    const mark = box.scrollWidth > box.clientWidth ? box.querySelector(".ring, .node.suspect") : null;
    if (mark) {
      const at = mark.getBoundingClientRect();
      box.scrollLeft = at.left + at.width / 2 - box.getBoundingClientRect().left - box.clientWidth / 2;
    }
  }

  const chart = document.getElementById("depth-chart");
  const points = JSON.parse(document.getElementById("chart-data").textContent).depth;
  if (chart && points.length) {
    const svg = chart.querySelector("svg");
    const tip = make("div", "");
    tip.id = "tip";
    tip.hidden = true;
    chart.append(tip);
    const cross = document.createElementNS("http://www.w3.org/2000/svg", "path");
    cross.setAttribute("class", "cross");
    svg.append(cross);
    const nearest = (x) => points.reduce((best, point) => (Math.abs(point[0] - x) < Math.abs(best[0] - x) ? point : best));
    let current = null;
    const show = (event) => {
      const box = svg.getBoundingClientRect();
      const scale = svg.viewBox.baseVal.width / box.width;
      current = nearest((event.clientX - box.left) * scale);
      const row = document.getElementById(`t${current[1]}`);
      const [name, node] = all("th span", row);
      tip.replaceChildren(
        make("b", name.textContent),
        make("span", `${row.cells[2].textContent} ${node.textContent}`, "quiet"),
        make("div", `introduced ${row.cells[4].textContent}`),
        make("div", `inherited ${row.cells[5].textContent}`),
        make("div", `total ${row.cells[3].textContent}`),
      );
      tip.hidden = false;
      cross.setAttribute("d", `M${current[0]},16V354`);
      const x = current[0] / scale;
      tip.style.left = `${x > box.width / 2 ? x - tip.offsetWidth - 14 : x + 14}px`;
      tip.style.top = `${Math.max(0, event.clientY - box.top - tip.offsetHeight / 2)}px`;
    };
    const hide = () => {
      tip.hidden = true;
      cross.setAttribute("d", "");
    };
    svg.addEventListener("pointermove", show);
    svg.addEventListener("pointerleave", hide);
    svg.addEventListener("click", () => {
      if (!current) return;
      all("tr.found").forEach((row) => row.classList.remove("found"));
      const row = document.getElementById(`t${current[1]}`);
      row.hidden = false;
      row.classList.remove("later");
      row.classList.add("found");
      row.scrollIntoView({ block: "center" });
    });
  }
  addEventListener("beforeprint", () => all("details").forEach((part) => (part.open = true)));
})();
