// Runs after the script of the page: uses its controls and reports the results.
const results = [];
const part = document.querySelector("#part-1"), map = part.querySelector(".map");
const press = (element, key) => element.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
const statusText = () => part.querySelector("[role=status]").textContent.replace("\n", " ");
const pixels = () => part.querySelector(".cells canvas").toDataURL();
const selected = () => part.querySelector("select.layer").value + part.querySelector("select.head").value;
const lines = () => part.querySelectorAll(".links path").length;
// The page opens on the sharpest head, with one colour scale.
results.push(selected(), part.querySelector("[aria-pressed=true] .entropy").textContent, part.querySelector(".colour-scale").value);
results.push(part.querySelector(".corner").innerText.replace("\n", " "), lines());
// Lines of the token that is pointed at, and of the row of the heatmap.
const token = part.querySelectorAll(".links text")[12 + 1];
token.dispatchEvent(new PointerEvent("pointerenter"));
results.push(lines(), document.querySelector(".tip").textContent.split("\n").slice(0, 2).join(" "));
token.dispatchEvent(new PointerEvent("pointerleave"));
results.push(lines());
map.focus();
press(map, "ArrowRight"); results.push(statusText());
press(map, "End"); press(map, "PageDown"); results.push(statusText());
press(map, "ArrowDown"); press(map, "ArrowRight"); results.push(statusText(), lines());
const before = pixels();
part.querySelectorAll(".overview button")[7].click();
results.push(selected(), pixels() !== before);
const head = part.querySelector("select.head");
head.value = "mean"; head.dispatchEvent(new Event("change"));
results.push(part.querySelectorAll("[aria-pressed=true]").length);
const size = part.querySelector(".size");
size.value = 40; size.dispatchEvent(new Event("input"));
results.push(part.querySelector(".cells").getBoundingClientRect().width);
const labels = [...part.querySelectorAll(".queries span")], cells = part.querySelector(".cells").getBoundingClientRect();
results.push(Math.abs(labels[11].getBoundingClientRect().bottom - cells.bottom) < 1);
const columns = [...part.querySelectorAll(".keys span")];
results.push(Math.abs(columns[11].getBoundingClientRect().right - cells.right) < 1);
// The words of an unimportant sentence are pale until they are coloured by word weight.
const review = document.querySelector("#part-6"), list = review.querySelector(".sentences"), colourBy = review.querySelector(".colour-by");
const colours = () => [1, 2].map((row) => getComputedStyle([...list.children[row].querySelectorAll(".word")].at(row === 1 ? 2 : 3)).backgroundColor);
const pale = colours();
results.push(colourBy.value, pale[0] !== pale[1]);
colourBy.value = "word"; colourBy.dispatchEvent(new Event("change"));
results.push(colours()[0] !== colours()[1]);
list.focus();
press(list, "ArrowDown"); press(list, "ArrowRight"); press(list, "ArrowRight");
results.push(review.querySelector("[role=status]").textContent.replace("\n", " "));
const sides = document.querySelector("#part-7 .map");
sides.scrollTo(500, 500);
const corner = sides.querySelector(".keys").getBoundingClientRect().top - sides.getBoundingClientRect().top;
results.push(sides.scrollLeft, Math.abs(corner) < 3);
// Selected queries of a long text: the keys are a text, coloured by the weights of the row below the
// pointer.
const long = document.querySelector("#part-8"), wide = long.querySelector(".cells").getBoundingClientRect();
const at = { clientX: wide.left + wide.width * 500.5 / 3000, clientY: wide.top + wide.height * 1.5 / 6, bubbles: true };
long.querySelector(".cells").dispatchEvent(new PointerEvent("pointermove", at));
const words = [...long.querySelectorAll(".key-text .word")];
const strongest = words.filter((word) => word.style.getPropertyValue("--product") === "1.000").map((word) => word.textContent);
results.push(document.querySelector(".tip").textContent.split("\n")[0], words.length, strongest.join(" "), long.querySelector(".links p").textContent.split(",")[0]);
results.push(long.querySelector(".queries span").offsetHeight >= 16, innerWidth, document.documentElement.scrollWidth <= innerWidth);
report(results);
