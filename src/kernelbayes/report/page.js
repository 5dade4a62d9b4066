// The pictures of a page are drawn already. This adds values on hover, zoom and the slider.
"use strict";
document.documentElement.classList.add("js");
const NS = "http://www.w3.org/2000/svg";
const make = (parent, tag, attributes) => {
  const node = document.createElementNS(NS, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  parent.appendChild(node);
  return node;
};
const clamp = (v, low, high) => Math.min(Math.max(v, low), high);
// Digits that tell values of a range of this width apart.
const show = (v, width) => {
  if (v === null || v === undefined) return "–";
  if (typeof v !== "number") return String(v);
  const places = clamp(3 - Math.floor(Math.log10(width || 1)), 0, 12);
  return Math.abs(v) >= 1e7 || places > 8 ? v.toPrecision(5) : v.toFixed(places).replace(/\.?0+$/, (s) => s.includes(".") ? "" : s);
};
const ticks = (low, high) => {
  const rough = (high - low) / 5, unit = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((k) => k * unit).find((s) => s >= rough * 0.999);
  const found = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k++) found.push(k * step);
  const places = clamp(-Math.floor(Math.log10(step) + 1e-9), 0, 12);
  return found.map((v) => [v, Math.abs(v) >= 1e7 || places > 6 ? v.toPrecision(4) : v.toFixed(places)]);
};

class Picture {
  constructor(figure) {
    this.figure = figure;
    this.svg = figure.querySelector("svg");
    this.spec = JSON.parse(figure.querySelector("script").textContent);
    this.data = this.svg.querySelector(".data");
    this.cursor = make(this.svg, "g", { class: "cursor" });
    this.tip = document.createElement("div");
    this.tip.className = "tip";
    this.tip.hidden = true;
    figure.appendChild(this.tip);
    this.x = this.spec.x.slice();
    this.y = this.spec.y.slice();
    this.svg.setAttribute("tabindex", "0");
    this.svg.addEventListener("pointermove", (e) => this.move(e));
    this.svg.addEventListener("pointerdown", (e) => this.press(e));
    this.svg.addEventListener("pointerup", (e) => this.release(e));
    this.svg.addEventListener("pointercancel", () => this.drop());
    this.svg.addEventListener("pointerleave", () => this.start || this.hide());
    this.svg.addEventListener("dblclick", () => this.reset());
    this.svg.addEventListener("keydown", (e) => this.key(e));
    if (this.spec.zoom) {
      const tools = document.createElement("div");
      tools.className = "tools";
      const does = [["+", "zoom in", () => this.scale(0.5)], ["−", "zoom out", () => this.scale(2)], ["⟲", "show all", () => this.reset()]];
      for (const [text, told, run] of does) {
        const button = document.createElement("button");
        button.type = "button";
        button.textContent = text;
        button.setAttribute("aria-label", told);
        button.addEventListener("click", run);
        tools.appendChild(button);
      }
      figure.appendChild(tools);
    }
  }
  px(v) { const [l, , r] = this.spec.box; return l + ((v - this.x[0]) / (this.x[1] - this.x[0])) * (r - l); }
  py(v) { const [, t, , b] = this.spec.box; return b - ((v - this.y[0]) / (this.y[1] - this.y[0])) * (b - t); }
  ux(p) { const [l, , r] = this.spec.box; return this.x[0] + ((p - l) / (r - l)) * (this.x[1] - this.x[0]); }
  uy(p) { const [, t, , b] = this.spec.box; return this.y[0] + ((b - p) / (b - t)) * (this.y[1] - this.y[0]); }
  place(e) {
    const at = this.svg.createSVGPoint();
    at.x = e.clientX; at.y = e.clientY;
    return at.matrixTransform(this.svg.getScreenCTM().inverse());
  }
  nearest(at) {
    const { at: xs, up: ys } = this.spec;
    let best = -1, least = Infinity;
    for (let i = 0; i < xs.length; i++) {
      const dx = this.px(xs[i]) - at.x, dy = ys ? this.py(ys[i]) - at.y : 0;
      if (dx * dx + dy * dy < least) { least = dx * dx + dy * dy; best = i; }
    }
    return best;
  }
  move(e) {
    const at = this.place(e);
    if (this.start) {
      const [l, t, r, b] = this.spec.box;
      const x0 = clamp(this.start.x, l, r), x1 = clamp(at.x, l, r);
      this.brush = this.brush || make(this.svg, "rect", { class: "brush" });
      const set = { x: Math.min(x0, x1), width: Math.abs(x1 - x0), y: t, height: b - t };
      for (const [k, v] of Object.entries(set)) this.brush.setAttribute(k, v);
    }
    this.point(this.nearest(at));
  }
  point(i) {
    if (i < 0) return;
    this.shown = i;
    const { at, up, rows, titles } = this.spec;
    const [l, t, r, b] = this.spec.box;
    const x = this.px(at[i]);
    if (x < l - 1 || x > r + 1) return this.hide();
    this.cursor.replaceChildren();
    if (up) make(this.cursor, "circle", { class: "mark", cx: x, cy: this.py(up[i]), r: 7 });
    else make(this.cursor, "line", { class: "mark", x1: x, x2: x, y1: t, y2: b });
    const head = titles ? titles[i] : `${this.spec.name} ${show(at[i], this.x[1] - this.x[0])}`;
    const lines = rows.map((row) => `${row.label}: ${show(row.values[i], row.width || this.y[1] - this.y[0])}`);
    this.tip.textContent = [head, ...lines].filter(Boolean).join("\n");
    this.tip.hidden = false;
    const frame = this.svg.getBoundingClientRect(), all = this.figure.getBoundingClientRect();
    const k = frame.width / 560, wide = this.tip.offsetWidth;
    this.tip.style.left = `${clamp(frame.left - all.left + x * k + 12, 0, Math.max(0, all.width - wide))}px`;
    this.tip.style.top = `${frame.top - all.top + t * k + 4}px`;
  }
  hide() { this.tip.hidden = true; this.cursor.replaceChildren(); }
  press(e) {
    if (!this.spec.zoom || e.button) return;
    this.start = this.place(e);
    this.svg.setPointerCapture(e.pointerId);
  }
  drop() { this.start = null; if (this.brush) this.brush.remove(); this.brush = null; }
  release(e) {
    if (!this.start) return;
    const a = this.ux(this.start.x), b = this.ux(this.place(e).x);
    const far = Math.abs(this.start.x - this.place(e).x) > 12;
    this.drop();
    if (far) this.show([Math.min(a, b), Math.max(a, b)], this.y);
  }
  key(e) {
    const last = this.spec.at.length - 1, now = this.shown === undefined ? -1 : this.shown;
    const does = { ArrowRight: () => this.point(Math.min(now + 1, last)), ArrowLeft: () => this.point(Math.max(now - 1, 0)),
      "+": () => this.scale(0.5), "-": () => this.scale(2), Escape: () => { this.reset(); this.hide(); } };
    if (!does[e.key] || (!this.spec.zoom && "+-".includes(e.key))) return;
    e.preventDefault();
    does[e.key]();
  }
  scale(factor) {
    const about = this.shown === undefined ? (this.x[0] + this.x[1]) / 2 : this.spec.at[this.shown];
    const around = ([low, high], c) => [c + (low - c) * factor, c + (high - c) * factor];
    const y = this.spec.up ? around(this.y, (this.y[0] + this.y[1]) / 2) : this.y;
    this.show(around(this.x, clamp(about, this.x[0], this.x[1])), y);
  }
  reset() { this.show(this.spec.x, this.spec.y); }
  show(x, y) {
    const [X0, X1] = this.spec.x, [Y0, Y1] = this.spec.y;
    this.x = x[1] - x[0] >= X1 - X0 ? [X0, X1] : [Math.max(x[0], X0), Math.min(x[1], X1)];
    this.y = y[1] - y[0] >= Y1 - Y0 ? [Y0, Y1] : [Math.max(y[0], Y0), Math.min(y[1], Y1)];
    if (!(this.x[1] - this.x[0] > 1e-9 * (X1 - X0))) this.x = [X0, X1];
    const [l, , , b] = this.spec.box;
    const sx = (X1 - X0) / (this.x[1] - this.x[0]), sy = (Y1 - Y0) / (this.y[1] - this.y[0]);
    const tx = this.px(X0) - sx * l, ty = this.py(Y0) - sy * b;
    this.data.setAttribute("transform", `matrix(${sx} 0 0 ${sy} ${tx} ${ty})`);
    this.axes();
    this.hide();
  }
  axes() {
    const [l, t, r, b] = this.spec.box;
    if (!this.spec.titles || this.spec.up) {
      const axis = this.svg.querySelector(".tick.x");
      axis.replaceChildren();
      for (const [v, text] of ticks(...this.x)) {
        make(axis, "line", { x1: this.px(v), x2: this.px(v), y1: t, y2: b });
        make(axis, "text", { x: this.px(v), y: b + 20, "text-anchor": "middle" }).textContent = text;
      }
    }
    const axis = this.svg.querySelector(".tick.y");
    if (!axis.hasAttribute("data-named")) {
      axis.replaceChildren();
      for (const [v, text] of ticks(...this.y)) {
        make(axis, "line", { x1: l, x2: r, y1: this.py(v), y2: this.py(v) });
        make(axis, "text", { x: l - 6, y: this.py(v) + 5, "text-anchor": "end" }).textContent = text;
      }
    }
  }
  // Coordinates of the picture before any zoom: the zoom is a transform of the data.
  flat(x, y) {
    const [l, t, r, b] = this.spec.box, [X0, X1] = this.spec.x, [Y0, Y1] = this.spec.y;
    return [l + ((x - X0) / (X1 - X0)) * (r - l), b - ((y - Y0) / (Y1 - Y0)) * (b - t)].map((v) => v.toFixed(1));
  }
  frame(i) {
    const { moving } = this.spec;
    if (!moving) return;
    const node = this.data.querySelector(".moving");
    if (moving.kind === "when") return node.setAttribute("d", `M${this.flat(moving.at[i], this.spec.y[0]).join(" ")}V${this.spec.box[1]}`);
    const values = moving.frames[i];
    if (moving.kind === "curve") {
      const [, base] = this.flat(0, 0);
      const path = values.map((y, j) => this.flat(moving.x[j], y).join(" "));
      node.setAttribute("d", `M${this.flat(moving.x[0], 0)[0]} ${base}L${path.join("L")}V${base}Z`);
      this.spec.rows[0].values = values;
    } else if (moving.kind === "bars") {
      node.setAttribute("d", values.map((y, j) => {
        const [x0, top] = this.flat(j - 0.4, y), [x1, base] = this.flat(j + 0.4, 0);
        return `M${x0} ${base}V${top}H${x1}V${base}Z`;
      }).join(""));
      this.spec.rows[0].values = values;
    } else {
      node.replaceChildren();
      const [xs, ys, sizes] = values;
      xs.forEach((x, j) => make(node, "path", { class: "dots second", d: `M${this.flat(x, ys[j]).join(" ")}h0`, "stroke-width": sizes[j], style: `stroke-width:${sizes[j]}` }));
    }
  }
}

for (const section of document.querySelectorAll("section")) {
  const pictures = [...section.querySelectorAll("figure.picture")].map((f) => new Picture(f));
  const slider = section.querySelector(".slider input");
  if (!slider) continue;
  const output = section.querySelector(".slider output"), told = JSON.parse(section.querySelector(".slider script").textContent);
  const go = () => {
    const i = Number(slider.value);
    output.textContent = told[i];
    slider.setAttribute("aria-valuetext", told[i]);
    pictures.forEach((p) => { p.frame(i); if (!p.tip.hidden) p.point(p.shown); });
  };
  slider.addEventListener("input", go);
  const play = section.querySelector(".play");
  let timer = 0;
  const stop = () => { clearInterval(timer); timer = 0; play.textContent = "▶"; };
  play.addEventListener("click", () => {
    if (timer) return stop();
    if (slider.value === slider.max) slider.value = 0;
    play.textContent = "❚❚";
    timer = setInterval(() => {
      slider.value = Number(slider.value) + 1;
      go();
      if (slider.value === slider.max) stop();
    }, 120);
  });
  go();
}
