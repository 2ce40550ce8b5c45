// Adds to a page that is complete without it: the table of all tensors, drawn where it is looked at, sorted and filtered;
// a tooltip on the depth chart. What is drawn comes from the page's data as text only.
"use strict";
const page = JSON.parse(document.getElementById("page-data").textContent);
const all = (selector, within = document) => Array.from(within.querySelectorAll(selector));
const make = (tag, text, name) => Object.assign(document.createElement(tag), { textContent: text, className: name || "" });
// What was filtered, sorted and opened stays in the address, so that a reload or a link shows it again.
const kept = new URLSearchParams(location.search);
const keep = (name, value) => {
  if (value) kept.set(name, value);
  else kept.delete(name);
  try {
    history.replaceState(null, "", `${kept.size ? `?${kept}` : location.pathname}${location.hash}`);
  } catch { /* a page inside another one has no address of its own */ }
};
// A name that is too long loses its middle: what tells names apart stands at their ends.
const short = (text, most) => {
  if (text.length <= most) return text;
  const head = (most - 1) >> 1;
  return `${text.slice(0, head)}…${text.slice(text.length - (most - 1 - head))}`;
};
const grouped = (value) => value.toLocaleString("en");
const rows = page.rows;
const pointed = (column, place) => rows[column].texts[rows[column].at[place]];
// Of a text only what the one before it lacks is held, or what another column's lacks.
const unshared = ({ starts, rests }, others) => {
  let last = "";
  return starts.map((start, place) => (last = (others ? others[place] : last).slice(0, start) + rests[place]));
};
rows.name = unshared(rows.name);
rows.node = unshared(rows.node, rows.name);
rows.other = unshared(rows.other, rows.name);
const nodeOf = (place) => rows.node[place] || rows.name[place];
const whole = (place) => `${rows.name[place]} ${rows.node[place]} ${pointed("operator", place)}`.toLowerCase();

(() => {
  const table = document.getElementById("all");
  if (!table) return;
  const ROW = 42, AROUND = 10, PRINTED = 400, LETTERS = "etaoinshrdlu_/.0123456789MBNC";
  const box = table.parentElement, body = table.tBodies[0], headers = table.tHead.rows[0].cells, form = document.getElementById("filter");
  const number = (text) => {
    if (text === "not finite" || text === "NaN") return Infinity;
    return parseFloat(text.slice(text.indexOf(":") + 1).replaceAll(",", ""));
  };
  const cells = [
    { number: (i) => rows.index[i] },
    { text: (i) => rows.name[i] },
    { text: (i) => pointed("operator", i) },
    { number: (i) => number(rows.total[i]) },
    { number: (i) => number(rows.introduced[i]) },
    { number: (i) => number(rows.inherited[i]) },
    { number: (i) => number(rows.max[i]) },
    { number: (i) => number(rows.channel[i]) },
    { text: (i) => pointed("grade", i) },
    { number: (i) => rows.lost[i]?.[1] ?? 0 },
    { text: (i) => pointed("shape", i) },
  ];
  let order = Array.from({ length: rows.count }, (_, i) => i);
  let shown = order, letters = Infinity;
  const paper = document.createElement("canvas").getContext("2d");
  // How many letters of a name there is room for.
  const room = () => {
    paper.font = getComputedStyle(table).font;
    return Math.max(16, Math.floor((headers[1].clientWidth - 20) / (paper.measureText(LETTERS).width / LETTERS.length)));
  };

  const line = (i) => {
    const row = make("tr", "", rows.classes[i] ?? "");
    row.id = `t${i}`;
    row.style.height = `${ROW}px`;
    const head = make("th", "");
    head.scope = "row";
    head.title = rows.node[i] ? `${rows.name[i]} (${rows.node[i]})` : rows.name[i];
    const paired = rows.how[i] ? [words("paired by {0} with {1}", words(rows.how[i]), rows.other[i])] : [];
    head.append(make("span", short(rows.name[i], letters), "name"), make("span", short([nodeOf(i), ...paired].join("; "), letters), "quiet"));
    const index = make("td", "", `num s${rows.state[i]}`);
    const open = make("button", String(rows.index[i] < 0 ? "" : rows.index[i]));
    open.type = "button";
    open.title = words("show on the map");
    open.addEventListener("click", () => document.dispatchEvent(new CustomEvent("open-node", { detail: rows.index[i] })));
    index.append(open);
    const shape = make("td", pointed("shape", i));
    shape.append(make("span", pointed("dtype", i), "quiet"));
    row.append(
      index, head, make("td", pointed("operator", i)), make("td", rows.total[i], "num"),
      make("td", rows.introduced[i], `num e${rows.level[i]}`), make("td", rows.inherited[i], "num"),
      make("td", rows.max[i], "num"), make("td", rows.channel[i], "num"), make("td", pointed("grade", i)),
      make("td", rows.lost[i]?.[0] ?? "", "num"), shape,
    );
    return row;
  };
  const gap = (lines) => {
    const row = make("tr", "", "gap");
    row.ariaHidden = "true";
    const cell = make("td", "");
    cell.colSpan = cells.length;
    cell.style.height = `${lines * ROW}px`;
    row.append(cell);
    return lines > 0 ? [row] : [];
  };
  const draw = (first = Math.max(0, Math.floor(box.scrollTop / ROW) - AROUND), many = Math.ceil((box.clientHeight || 800) / ROW) + 2 * AROUND) => {
    const last = Math.min(shown.length, first + many);
    letters = many === PRINTED ? Infinity : room();
    body.replaceChildren(...gap(first), ...shown.slice(first, last).map(line), ...gap(shown.length - last));
    table.ariaRowCount = String(shown.length + 1);
  };
  const filter = () => {
    const wanted = form.elements.text.value.trim().toLowerCase();
    const worse = form.elements.worse.checked;
    keep("text", form.elements.text.value.trim());
    keep("worse", worse ? "1" : "");
    shown = order.filter((i) => (!worse || number(rows.introduced[i]) > 1e-3) && (!wanted || whole(i).includes(wanted)));
    const of = shown.length === rows.count ? "" : ` / ${grouped(rows.count)}`;
    form.querySelector("output").textContent = words("{0} tensors", `${grouped(shown.length)}${of}`);
    box.scrollTop = 0;
    draw();
  };
  const sort = (column, descending) => {
    const { number: value, text } = cells[column], header = headers[column];
    const was = header.getAttribute("aria-sort");
    const down = descending ?? (was ? was === "ascending" : !text && column > 0);
    const keys = Array.from({ length: rows.count }, (_, i) => (text ? text(i) : value(i)));
    const absent = (i) => !text && Number.isNaN(keys[i]);
    const compare = text
      ? (a, b) => keys[a].localeCompare(keys[b], "en", { numeric: true })
      : (a, b) => (keys[a] === keys[b] ? 0 : keys[a] - keys[b]);
    order = Array.from({ length: rows.count }, (_, i) => i);
    order.sort((a, b) => absent(a) - absent(b) || (down ? compare(b, a) : compare(a, b)) || a - b);
    for (const other of headers) other.removeAttribute("aria-sort");
    header.setAttribute("aria-sort", down ? "descending" : "ascending");
    filter();
  };
  Array.from(headers).forEach((header, column) => {
    const button = make("button", header.textContent);
    button.type = "button";
    header.replaceChildren(button);
    button.addEventListener("click", () => {
      sort(column);
      keep("sort", `${column}${header.getAttribute("aria-sort") === "descending" ? "d" : "a"}`);
    });
  });
  form.addEventListener("input", filter);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.hidden = false;
  let asked = 0;
  box.addEventListener("scroll", () => {
    cancelAnimationFrame(asked);
    asked = requestAnimationFrame(() => draw());
  });
  document.addEventListener("find-tensor", (event) => {
    if (!shown.includes(event.detail)) {
      form.elements.text.value = "";
      form.elements.worse.checked = false;
      filter();
    }
    box.scrollTop = Math.max(0, shown.indexOf(event.detail) * ROW - box.clientHeight / 2);
    draw();
    const row = document.getElementById(`t${event.detail}`);
    row.classList.add("found");
    row.scrollIntoView({ block: "center" });
    row.querySelector("button").focus({ preventScroll: true });
  });
  addEventListener("language", filter);
  addEventListener("beforeprint", () => draw(0, PRINTED));
  addEventListener("afterprint", () => draw());
  const useful = rows.introduced.some((text) => !Number.isNaN(number(text)));
  form.elements.text.value = kept.get("text") ?? "";
  form.elements.worse.checked = kept.has("worse");
  const [, column, way] = /^(\d+)([ad])$/.exec(kept.get("sort") ?? "") ?? [];
  if (column in cells) sort(Number(column), way === "d");
  else sort(useful ? 4 : 3);
})();

(() => {
  // A drawing that is wider than the screen starts at what it is about: the first mark in it.
  for (const box of all(".chart")) {
    const mark = box.scrollWidth > box.clientWidth ? box.querySelector(".ring, .node.suspect") : null;
    if (mark) {
      const at = mark.getBoundingClientRect();
      box.scrollLeft = at.left + at.width / 2 - box.getBoundingClientRect().left - box.clientWidth / 2;
    }
  }
  const chart = document.getElementById("depth-chart"), [origin, step] = page.depth;
  if (chart && page.depth.length) {
    const points = rows.index.map((index, i) => [origin + step * index, i]).filter(([, i]) => rows.index[i] >= 0);
    const svg = chart.querySelector("svg");
    const tip = make("div", "", "tip");
    tip.id = "tip";
    tip.hidden = true;
    chart.append(tip);
    const cross = document.createElementNS("http://www.w3.org/2000/svg", "path");
    cross.setAttribute("class", "cross");
    svg.append(cross);
    let current = null;
    svg.addEventListener("pointermove", (event) => {
      const box = svg.getBoundingClientRect();
      const scale = svg.viewBox.baseVal.width / box.width, x = (event.clientX - box.left) * scale;
      current = points.reduce((best, point) => (Math.abs(point[0] - x) < Math.abs(best[0] - x) ? point : best));
      const i = current[1];
      tip.replaceChildren(
        make("b", rows.name[i]),
        make("span", `${pointed("operator", i)} ${nodeOf(i)}`, "quiet"),
        ...["introduced", "inherited", "total"].map((column) => make("div", `${words(column)} ${rows[column][i]}`)),
      );
      tip.hidden = false;
      cross.setAttribute("d", `M${current[0]},16V354`);
      const left = current[0] / scale;
      tip.style.left = `${left > box.width / 2 ? left - tip.offsetWidth - 14 : left + 14}px`;
      tip.style.top = `${Math.max(0, event.clientY - box.top - tip.offsetHeight / 2)}px`;
    });
    svg.addEventListener("pointerleave", () => {
      tip.hidden = true;
      cross.setAttribute("d", "");
    });
    svg.addEventListener("click", () => {
      if (current) document.dispatchEvent(new CustomEvent("open-node", { detail: rows.index[current[1]] }));
    });
  }
  addEventListener("beforeprint", () => all("details").forEach((part) => (part.open = true)));
})();
