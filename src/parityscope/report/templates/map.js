// The strip of all nodes in order, which is the map of the page, and the graph around the node that is open.

(() => {
  const strip = document.getElementById("strip");
  if (!strip) return;
  const nodes = page.map.nodes, cause = page.map.cause, wiring = page.map.wiring;
  const states = new Uint8Array(nodes), rowsOf = Array.from({ length: nodes }, () => []);
  rows.index.forEach((index, i) => {
    if (index < 0 || index >= nodes) return;
    states[index] = Math.max(states[index], +rows.state[i]);
    rowsOf[index].push(i);
  });
  if (cause != null && states[cause] < 3) states[cause] = 3;  // a proved cause, though its own tensor was not graded
  const reads = wiring.reads ?? [], readBy = reads.map(() => []);
  reads.forEach((from, node) => from.forEach((other) => readBy[other]?.push(node)));
  const names = wiring.names ? unshared(wiring.names) : [], kinds = wiring.operators;
  const operator = (node) => (rowsOf[node].length ? pointed("operator", rowsOf[node][0]) : kinds?.texts[kinds.at[node]] ?? "");
  const numbered = (node) => words("node #{0} of #0 to #{1}", grouped(node), grouped(nodes - 1)); // as unnamed nodes are called
  const named = (node) => (rowsOf[node].length ? nodeOf(rowsOf[node][0]) : names[node] || words("node #{0}", grouped(node)));

  const canvas = strip.querySelector("canvas"), paper = canvas.getContext("2d");
  const search = document.getElementById("search"), panel = document.getElementById("node");
  const tip = make("div", "", "tip");
  tip.hidden = true;
  strip.append(tip);
  // What is not in the network needs no explanation.
  const legend = document.getElementById("states");
  for (const each of legend.children) each.hidden = each.dataset.state === "cause" ? cause == null : !states.includes(+each.dataset.state);
  // It is the map of the page: where what stands before it fills the first screen, it goes under the verdict.
  const home = make("div", "");
  strip.before(home);
  const place = () => {
    const fits = home.getBoundingClientRect().top + scrollY + 64 <= innerHeight;
    const here = fits ? home : document.querySelector("h1");
    if (here.nextElementSibling !== strip) here.after(strip, legend);
  };
  let from = 0, to = nodes, found = [];
  const first = cause ?? (states.includes(4) ? states.indexOf(4) : 0), asked_for = Number(kept.get("node")) - 1;
  let open = asked_for >= 0 && asked_for < nodes ? Math.floor(asked_for) : first;

  const color = (name) => getComputedStyle(strip).getPropertyValue(name).trim();
  const paint = () => {
    const scale = devicePixelRatio || 1, wide = canvas.clientWidth, high = canvas.clientHeight;
    canvas.width = Math.round(wide * scale);
    canvas.height = Math.round(high * scale);
    paper.setTransform(scale, 0, 0, scale, 0, 0);
    const colors = [0, 1, 2, 3, 4].map((state) => color(`--s${state}`));
    const step = wide / (to - from), gap = step > 4 ? 1 : 0, bar = high - 12;
    // Where several nodes share a pixel the gravest shows.
    const many = Math.max(1, Math.floor(1 / step));
    for (let node = Math.floor(from); node < to; node += many) {
      let worst = 0;
      for (let other = node; other < Math.min(node + many, nodes); other++) worst = Math.max(worst, states[other]);
      paper.fillStyle = colors[worst];
      const left = Math.round((node - from) * step), right = Math.round((node + many - from) * step);
      paper.fillRect(left, 6, Math.max(1, right - left - gap), bar);
    }
    const mark = (node, name, width) => {
      if (node == null || node < from - 1 || node > to) return;
      const x = (node - from) * step, w = Math.max(5, step - gap);
      paper.strokeStyle = color(name);
      paper.lineWidth = width;
      paper.strokeRect(x + step / 2 - w / 2, 6 - width / 2, w, bar + width);
    };
    paper.fillStyle = color("--link");
    for (const node of found) paper.fillRect((node - from) * step, high - 4, Math.max(2, step - gap), 4);
    mark(open, "--link", 2);
    mark(cause, "--ink", 3);
    strip.setAttribute("aria-valuenow", String(open + 1));
    strip.setAttribute("aria-valuetext", described(open));
  };
  const described = (node) => `${numbered(node)}, ${operator(node)} ${named(node)}: ${words(page.states[states[node]])}`;
  const zoom = (factor, at = open) => {
    const wide = Math.min(nodes, Math.max(Math.min(nodes, 12), (to - from) * factor));
    const part = (at + 0.5 - from) / (to - from);
    from = Math.min(Math.max(0, at + 0.5 - Math.min(Math.max(part, 0), 1) * wide), nodes - wide);
    to = from + wide;
    paint();
  };
  const at = (event) => {
    const box = canvas.getBoundingClientRect();
    return Math.min(nodes - 1, Math.max(0, Math.floor(from + ((event.clientX - box.left) / box.width) * (to - from))));
  };
  const fact = (name, text) => {
    const pair = make("div", "");
    pair.append(make("dt", name), make("dd", text));
    return pair;
  };
  const copying = (text) => {
    const button = make("button", words("Copy name"));
    button.type = "button";
    button.addEventListener("click", () => navigator.clipboard?.writeText(text).then(() => (button.textContent = words("Copied"))));
    return button;
  };
  const tell = () => {
    const head = make("h3", "");
    const code = make("code", short(named(open), 72));
    code.title = named(open);
    head.append(code, make("span", ` ${operator(open)}, ${numbered(open)}`, "quiet"));
    const said = make("p", "", "state");
    said.append(make("span", "", `swatch cell s${states[open]}`), ` ${words(page.states[states[open]])}`);
    if (open === cause) said.append(`; ${words("the cause is here")}`);
    const doing = make("p", "", "doing");
    doing.append(copying(named(open)));
    panel.replaceChildren(head, said, doing);
    for (const i of rowsOf[open]) {
      const facts = make("dl", "", "facts");
      facts.append(
        fact(words("tensor"), rows.name[i]), fact(words("introduced"), rows.introduced[i]),
        fact(words("inherited"), rows.inherited[i]), fact(words("total"), rows.total[i]),
        fact(words("largest absolute error"), rows.max[i]), fact(words("grade"), pointed("grade", i)),
        fact(words("shape"), `${pointed("shape", i)} ${pointed("dtype", i)}`),
      );
      if (rows.lost[i]) facts.append(fact(words("NaN, Inf"), rows.lost[i][0]));
      panel.append(facts);
      const row = make("button", words("In the table"));
      row.type = "button";
      row.addEventListener("click", () => document.dispatchEvent(new CustomEvent("find-tensor", { detail: i })));
      doing.append(row);
      if (page.panels[rows.name[i]]) {
        const link = make("a", words("Histograms"), "button");
        link.href = `#${page.panels[rows.name[i]]}`;
        doing.append(link);
      }
    }
    if (!rowsOf[open].length) panel.append(make("p", words("This node's result was not compared: it is fused, or was not observed."), "quiet"));
    graph();
  };
  const select = (node, staying) => {
    open = Math.min(nodes - 1, Math.max(0, node));
    if (!staying && (open < from || open >= to)) {
      const wide = to - from;
      from = Math.min(Math.max(0, open - wide / 2), nodes - wide);
      to = from + wide;
    }
    keep("node", open === first ? "" : String(open + 1));
    paint();
    tell();
  };

  canvas.addEventListener("pointermove", (event) => {
    const node = at(event), box = strip.getBoundingClientRect(), x = event.clientX - box.left, i = rowsOf[node][0];
    tip.replaceChildren(make("b", named(node)), make("span", `${operator(node)}, ${numbered(node)}`, "quiet"), make("div", words(page.states[states[node]])));
    if (i !== undefined) for (const column of ["introduced", "inherited"]) tip.append(make("div", `${words(column)} ${rows[column][i]}`));
    tip.hidden = false;
    tip.style.left = `${x > box.width / 2 ? Math.max(0, x - tip.offsetWidth - 12) : x + 12}px`;
  });
  canvas.addEventListener("pointerleave", () => (tip.hidden = true));
  canvas.addEventListener("click", (event) => select(at(event), true));
  canvas.addEventListener("wheel", (event) => {
    // A page that scrolls must not be caught: the wheel zooms where the strip has the focus, or with Ctrl.
    if (!event.ctrlKey && document.activeElement !== strip) return;
    event.preventDefault();
    zoom(event.deltaY > 0 ? 1.25 : 0.8, at(event));
  }, { passive: false });
  strip.addEventListener("keydown", (event) => {
    const jump = Math.max(1, Math.round((to - from) / 10));
    const moves = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageDown: jump, PageUp: -jump, Home: -nodes, End: nodes };
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key in moves) select(open + moves[event.key]);
    else if (event.key === "+" || event.key === "=") zoom(0.5);
    else if (event.key === "-") zoom(2);
    else if (event.key === "Enter") panel.focus();
    else return;
    event.preventDefault();
  });
  const doing = { in: () => zoom(0.5), out: () => zoom(2), all: () => zoom(nodes), cause: () => select(cause), };
  for (const button of all("[data-map]")) {
    button.hidden = button.dataset.map === "cause" && cause == null;
    button.addEventListener("click", () => doing[button.dataset.map]());
  }
  let asked = "";
  const look = () => {
    asked = search.value.trim().toLowerCase();
    keep("search", search.value.trim());
    const texts = (node) => `${named(node)} ${operator(node)} ${rowsOf[node].map((i) => rows.name[i]).join(" ")}`.toLowerCase();
    found = asked ? Array.from({ length: nodes }, (_, node) => node).filter((node) => texts(node).includes(asked)) : [];
    document.getElementById("found").textContent = asked ? words("{0} found", grouped(found.length)) : "";
    paint();
  };
  search.addEventListener("input", look);
  search.form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (found.length) select(found.find((node) => node > open) ?? found[0]);
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || /INPUT|TEXTAREA/.test(document.activeElement.tagName)) return;
    event.preventDefault();
    search.focus();
  });
  addEventListener("language", () => select(open, true));
  document.addEventListener("open-node", (event) => {
    if (event.detail < 0) return;
    select(event.detail);
    document.getElementById("network").scrollIntoView();
  });

  // The graph: layers of longest paths, a few barycentre sweeps; it is dragged, zoomed and walked from node to node.
  const drawing = document.getElementById("around"), BOX = 200, HIGH = 52, GAP = 16, DOWN = 34;
  let most = 16, view = null;
  const element = (tag, attributes, text) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    if (text !== undefined) made.textContent = text;
    return made;
  };
  const neighbours = () => {
    const near = new Set([open]);
    for (let edge = [open]; edge.length && near.size < most; ) {
      const ahead = [];
      for (const node of edge)
        for (const other of [...(reads[node] ?? []), ...(readBy[node] ?? [])])
          if (!near.has(other) && near.size < most) {
            near.add(other);
            ahead.push(other);
          }
      edge = ahead;
    }
    return [...near].sort((a, b) => a - b);
  };
  const places = (near) => {
    const depth = new Map();
    for (const node of near) depth.set(node, Math.max(0, ...(reads[node] ?? []).filter((other) => depth.has(other)).map((other) => depth.get(other) + 1)));
    let layers = [];
    for (const node of near) (layers[depth.get(node)] ??= []).push(node);
    layers = layers.filter(Boolean);
    for (let sweep = 0; sweep < 4; sweep++) {
      const rank = new Map(layers.flatMap((layer) => layer.map((node, i) => [node, i - layer.length / 2])));
      const mean = (node) => {
        const beside = [...(reads[node] ?? []), ...(readBy[node] ?? [])].filter((other) => rank.has(other));
        return beside.length ? beside.reduce((sum, other) => sum + rank.get(other), 0) / beside.length : rank.get(node);
      };
      layers = layers.map((layer) => layer.map((node) => [mean(node), node]).sort((a, b) => a[0] - b[0]).map((pair) => pair[1]));
    }
    const wide = Math.max(...layers.map((layer) => layer.length)) * (BOX + GAP);
    const at = new Map();
    layers.forEach((layer, row) => layer.forEach((node, column) => at.set(node, [(wide - layer.length * (BOX + GAP)) / 2 + column * (BOX + GAP), row * (HIGH + DOWN)])));
    return { at, wide, high: layers.length * (HIGH + DOWN) };
  };
  const look_at = () => drawing.firstChild.setAttribute("viewBox", view.map((value) => value.toFixed(1)).join(" "));
  const graph = () => {
    if (!reads.length || !drawing) return;
    const near = neighbours(), { at, wide, high } = places(near);
    const svg = element("svg", { role: "group", "aria-label": words("the graph around {0}", named(open)) });
    for (const node of near)
      for (const other of reads[node] ?? []) {
        if (!at.has(other)) continue;
        const [x, y] = at.get(other), [u, v] = at.get(node), bend = Math.max(12, (v - y - HIGH) / 2);
        svg.append(element("path", { class: "edge", d: `M${x + BOX / 2},${y + HIGH}C${x + BOX / 2},${y + HIGH + bend} ${u + BOX / 2},${v - bend} ${u + BOX / 2},${v}` }));
      }
    for (const node of near) {
      const [x, y] = at.get(node), marks = `${node === open ? " open" : ""}${node === cause ? " cause" : ""}`;
      const box = element("g", { class: `cell s${states[node]}${marks}`, tabindex: 0, role: "button" });
      box.append(
        element("title", {}, named(node)), element("rect", { x, y, width: BOX, height: HIGH, rx: 5 }),
        element("rect", { x, y, width: 8, height: HIGH, rx: 3, class: "flag" }),
        element("text", { x: x + 16, y: y + 20, class: "strong" }, short(operator(node) || "node", 24)),
        element("text", { x: x + 16, y: y + 39, class: "small" }, short(named(node), 25)),
      );
      const go = () => {
        select(node);
        drawing.querySelector(".open")?.focus({ preventScroll: true });
      };
      box.addEventListener("click", () => !moved && go());
      box.addEventListener("keydown", (event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        go();
      });
      svg.append(box);
    }
    drawing.replaceChildren(svg);
    const shape = drawing.clientWidth / drawing.clientHeight || 2, [x, y] = at.get(open);
    const seen = Math.min(Math.max(wide, high * shape), Math.max(BOX * 1.5, drawing.clientWidth * 1.15));
    view = [x + BOX / 2 - seen / 2, y + HIGH / 2 - seen / shape / 2, seen, seen / shape];
    if (wide <= seen) view[0] = (wide - seen - GAP) / 2;
    if (high <= seen / shape) view[1] = (high - DOWN - seen / shape) / 2;
    look_at();
  };
  let moved = false, drag = null;
  const closer = (factor, x = 0.5, y = 0.5) => {
    view = [view[0] + view[2] * (1 - factor) * x, view[1] + view[3] * (1 - factor) * y, view[2] * factor, view[3] * factor];
    look_at();
  };
  if (drawing && reads.length) {
    drawing.parentElement.hidden = false;
    drawing.addEventListener("pointerdown", (event) => {
      drag = [event.clientX, event.clientY];
      moved = false;
    });
    drawing.addEventListener("pointermove", (event) => {
      if (!drag || !event.buttons) return;
      const scale = view[2] / drawing.clientWidth, [x, y] = drag;
      if (Math.abs(event.clientX - x) + Math.abs(event.clientY - y) > 4) moved = true;
      if (!moved) return;
      view[0] -= (event.clientX - x) * scale;
      view[1] -= (event.clientY - y) * scale;
      drag = [event.clientX, event.clientY];
      look_at();
    });
    drawing.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !drawing.contains(document.activeElement)) return;
      event.preventDefault();
      const box = drawing.getBoundingClientRect();
      closer(event.deltaY > 0 ? 1.2 : 1 / 1.2, (event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height);
    }, { passive: false });
    // By keyboard: arrows move the view, + and - zoom, Tab goes from node to node and takes the view along.
    const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    drawing.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key in step) {
        view[0] += (step[event.key][0] * view[2]) / 8;
        view[1] += (step[event.key][1] * view[3]) / 8;
        look_at();
      } else if (event.key === "+" || event.key === "=") closer(0.7);
      else if (event.key === "-") closer(1 / 0.7);
      else return;
      event.preventDefault();
    });
    drawing.addEventListener("focusin", (event) => {
      const box = event.target.getBBox?.(), [x, y, wide, high] = view;
      if (!box || (box.x >= x && box.x + box.width <= x + wide && box.y >= y && box.y + box.height <= y + high)) return;
      view = [box.x + box.width / 2 - wide / 2, box.y + box.height / 2 - high / 2, wide, high];
      look_at();
    });
    const around = { in: () => closer(0.7), out: () => closer(1 / 0.7), more: () => (most = Math.min(200, most * 2)) && graph(), less: () => (most = Math.max(4, most >> 1)) && graph() };
    for (const button of all("[data-graph]")) button.addEventListener("click", () => around[button.dataset.graph]());
  }

  for (const part of all("#network [hidden].live")) part.hidden = false;
  place();
  new ResizeObserver(paint).observe(canvas);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paint);
  paint();
  tell();
  if (kept.get("search")) {
    search.value = kept.get("search");
    look();
  }
})();
