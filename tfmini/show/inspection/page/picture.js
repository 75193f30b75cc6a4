"use strict";
// What pages with pictures share: the picture in its place, boxes and rows as buttons for the keyboard, PNG files.
const cssColour = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
const darkScreen = window.matchMedia("screen and (prefers-color-scheme: dark)");

// Shows SVG text. What is alike stays the same element, so that the focus and the mouse stay where they are.
function showPicture(place, text) {
  const fresh = document.importNode(new DOMParser().parseFromString(text, "image/svg+xml").documentElement, true);
  const focused = document.activeElement && document.activeElement.dataset ? document.activeElement.dataset.id : undefined;
  if (place.firstElementChild) renew(place.firstElementChild, fresh);
  else place.append(fresh);
  if (!focused || (document.activeElement && document.activeElement.dataset.id === focused)) return;
  const same = boxOf(focused, place);
  if (same) same.focus();
}

function renew(old, fresh) {
  if (old.tagName !== fresh.tagName || old.childNodes.length !== fresh.childNodes.length || old.dataset.id !== fresh.dataset.id) { old.replaceWith(fresh); return; }
  for (const { name, value } of [...fresh.attributes]) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  [...fresh.childNodes].forEach((node, i) => {
    const before = old.childNodes[i];
    if (node.nodeType === Node.ELEMENT_NODE && before.nodeType === Node.ELEMENT_NODE) renew(before, node);
    else if (node.nodeType !== before.nodeType) before.replaceWith(node);
    else if (before.data !== node.data) before.data = node.data;
  });
}

// Enter and the space bar do what a click does, on all that says that it is a button.
document.addEventListener("keydown", (event) => {
  const target = event.target;
  if (!["Enter", " "].includes(event.key) || !target.matches || !target.matches("[role=button]")) return;
  event.preventDefault();
  target.dispatchEvent(new MouseEvent("click", { bubbles: true, detail: event.key === "Enter" && event.shiftKey ? 2 : 1 }));
});

function asButton(made, action) {
  made.tabIndex = 0;
  made.setAttribute("role", "button");
  made.onclick = action;
  return made;
}

function saveBlob(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

// A picture as a PNG of twice its size, in the colours of the screen.
async function pngOf(svg) {
  const copy = svg.cloneNode(true), [x, y, w, h] = svg.getAttribute("viewBox").split(" ").map(Number);
  const css = [...document.querySelectorAll("style")].map((style) => style.textContent).join("\n");
  const now = [...new Set(css.match(/--\w+/g))].map((name) => name + ":" + cssColour(name.slice(2)) + ";").join("");
  const style = document.createElementNS(svg.namespaceURI, "style"), paper = document.createElementNS(svg.namespaceURI, "rect");
  style.textContent = css.replace(/body\s*\{[^}]*\}/g, "") + "\n:root{" + now + "}";
  for (const [name, value] of Object.entries({ x, y, width: w, height: h, fill: cssColour("paper") })) paper.setAttribute(name, value);
  copy.prepend(style, paper);
  copy.setAttribute("width", w); copy.setAttribute("height", h);
  const image = new Image();
  image.src = "data:image/svg+xml;charset=utf-8," + encodeURIComponent(new XMLSerializer().serializeToString(copy));
  await image.decode();
  const canvas = document.createElement("canvas");
  canvas.width = 2 * w; canvas.height = 2 * h;
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((done) => canvas.toBlob(done, "image/png"));
}

const boxOf = (id, place = document) => [...place.querySelectorAll("[data-id]")].find((box) => box.dataset.id === id);
const boxNames = (selector) => [...document.querySelectorAll("svg.picture " + selector + "[data-id]")].map((box) => box.dataset.id);
