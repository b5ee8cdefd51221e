// Comment and quality of a run, changed where they stand.
import { post } from "./connection.js";
import { element } from "./dom.js";
import { whyNoChange } from "./page.js";

const QUALITIES = ["unknown", "good", "bad"];

async function save(run, what, body, problem) {
  problem.textContent = "";
  try {
    await post(`runs/${run}/${what}`, body);
    return true;
  } catch (error) {
    problem.textContent = `Not saved: ${error.message}`;
    return false;
  }
}

// A comment with its button; while it is edited `box.dataset.editing` is set.
export function commentOf({ run, comment = "" }, changed) {
  const box = element("span", { class: "edit" });
  const problem = element("span", { class: "bad", role: "alert" });
  let text = comment;

  const show = () => {
    delete box.dataset.editing;
    const why = whyNoChange();
    const button = element(
      "button",
      {
        type: "button",
        class: "small",
        "aria-label": `Edit the comment of run ${run}`,
        title: why || undefined,
        "aria-disabled": why ? "true" : "false",
        click: () => (why ? undefined : edit()),
      },
      "Edit",
    );
    box.replaceChildren(element("span", { class: "said" }, text), button, problem);
    return button;
  };

  const edit = () => {
    box.dataset.editing = "";
    problem.textContent = "";
    const input = element("input", { "aria-label": `Comment of run ${run}`, maxlength: "1000" });
    input.value = text;
    const form = element(
      "form",
      {
        submit: async (event) => {
          event.preventDefault();
          if (!(await save(run, "comment", { text: input.value }, problem))) return;
          text = input.value;
          show().focus();
          changed?.("comment", text);
        },
        keydown: (event) => {
          if (event.key === "Escape") show().focus();
        },
      },
      input,
      element("button", { type: "submit", class: "small primary" }, "Save"),
      element("button", { type: "button", class: "small", click: () => show().focus() }, "Cancel"),
    );
    box.replaceChildren(form, problem);
    input.focus();
    input.select();
  };

  show();
  return box;
}

export function qualityOf({ run, quality = "unknown" }, changed) {
  const problem = element("span", { class: "bad", role: "alert" });
  let now = quality;
  const why = whyNoChange();
  const select = element(
    "select",
    {
      "aria-label": `Quality of run ${run}`,
      disabled: Boolean(why),
      title: why || undefined,
      change: async () => {
        if (await save(run, "quality", { quality: select.value }, problem)) {
          now = select.value;
          select.dataset.quality = now;
          changed?.("quality", now);
        } else {
          select.value = now;
        }
      },
    },
    ...QUALITIES.map((name) => element("option", { value: name }, name)),
  );
  select.value = now;
  select.dataset.quality = now;
  return element("span", { class: "edit" }, select, problem);
}
