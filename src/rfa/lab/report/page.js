// ---- the page ----

// An exhibit, whose panels share which lines are switched off.
const present = (section, panels) => {
  const hidden = new Set();
  const entries = () => [...section.querySelectorAll(".legend button")];
  const views = [...section.querySelectorAll(".view")];
  const swatch = (label, itself) => {
    const drawn = entries().find((entry) => entry.dataset.label === label).firstElementChild;
    return itself ? drawn : drawn.cloneNode(true);
  };
  const exhibit = { hidden, swatch, interval: false, points: true };
  const charts = [...section.querySelectorAll(".chart")].map(
    (node) => new Chart(node, panels[node.dataset.panel], exhibit),
  );
  const chartOf = (target) =>
    charts.find((chart) => chart.node === target.closest("figure").querySelector(".chart"));
  const named = (chart, end) => fileName(`${section.id} ${chart.panel.title}`, end);
  // A switch is the same in all pictures of the exhibit.
  const turn = (kind, on) => {
    section.querySelectorAll(`.switches .${kind}`).forEach((box) => (box.checked = on));
    if (kind === "log") charts.forEach((chart) => Object.assign(chart.panel, { logY: on }));
    else exhibit[kind] = on;
    charts.forEach((chart) => chart.zoom(null));
  };
  const toggle = (label) => {
    if (!hidden.delete(label)) hidden.add(label);
    const shown = (entry) => !hidden.has(entry.dataset.label);
    entries().forEach((entry) => entry.setAttribute("aria-pressed", shown(entry)));
    charts.forEach((chart) => chart.draw());
  };
  section.addEventListener("click", ({ target }) => {
    const entry = target.closest(".legend button");
    if (entry) toggle(entry.dataset.label);
    if (target.closest(".save")) {
      const table = target.closest("details").querySelector("table");
      const title = target.closest("details").querySelector("h3").textContent;
      save(fileName(`${section.id} ${title}`, "csv"), "text/csv", tableCsv(table));
    }
    if (target.closest(".csv")) {
      const chart = chartOf(target);
      save(named(chart, "csv"), "text/csv", panelCsv(chart.panel));
    }
    if (target.closest(".svg")) {
      const chart = chartOf(target);
      save(named(chart, "svg"), "image/svg+xml", pictureSvg(chart));
    }
    if (target.closest(".expand")) enlarge(target.closest("figure"));
    if (target.closest(".copy")) copy(target, section.querySelector(".command code"));
    if (target.matches(".shut")) target.closest("dialog").close();
  });
  section.addEventListener("change", ({ target }) => {
    if (target.closest(".switches")) turn(target.className, target.checked);
    else views.forEach((view, i) => view.classList.toggle("other", i !== Number(target.value)));
  });
  addEventListener("beforeprint", () => {
    charts.forEach((chart) => chart.width || chart.resize(360));
    section.querySelectorAll("details").forEach((details) => (details.open = true));
  });
};

// A panel moves to the dialog and back, so that its zoom stays; its place is kept for it.
const enlarge = (figure) => {
  const dialog = figure.closest(".pictures").querySelector("dialog");
  const place = figure.cloneNode(false);
  const legend = figure.closest(".view").querySelector(".legend").cloneNode(true);
  place.style.height = `${figure.offsetHeight}px`;
  figure.replaceWith(place);
  figure.firstElementChild.after(legend);
  dialog.append(figure);
  dialog.showModal();
  const back = () => {
    dialog.removeEventListener("close", back);
    removeEventListener("beforeprint", back);
    dialog.close();
    legend.remove();
    place.replaceWith(figure);
    figure.querySelector(".expand").focus();
  };
  dialog.addEventListener("close", back);
  addEventListener("beforeprint", back); // or the panel would be missing on paper
};

const copy = async (button, code) => {
  let done = true;
  try {
    await navigator.clipboard.writeText(code.textContent);
  } catch {
    getSelection().selectAllChildren(code); // without leave the text is at least selected
    done = document.execCommand("copy");
  }
  button.textContent = done ? "Copied" : "Selected";
  setTimeout(() => (button.textContent = "Copy"), 2000);
};

document.documentElement.classList.add("live");
const data = JSON.parse(document.getElementById("page-data").textContent);
document.querySelectorAll(".exhibit").forEach((section, i) => present(section, data[i]));

// The contents are always open beside the text; above it they begin closed.
const wide = matchMedia("(min-width: 64rem)");
const fold = () => (document.querySelector("nav details").open = wide.matches);
wide.addEventListener("change", fold);
fold();
