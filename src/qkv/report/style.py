"""The CSS of a report: light and dark mode, screens and phones. Colours are variables, defined at the top."""

STYLE = """
:root {
  --paper: #fafaf8; --card: #ffffff; --ink: #1c1e22; --soft: #666b75; --rule: #e5e5e0;
  --one: #3b5bdb; --two: #e8590c; --three: #0c8599; --four: #ae3ec9; --five: #5c940d; --six: #868e96;
  --right: #2b8a3e; --wrong: #c92a2a; --wrong-back: #ffe9e6;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #131418; --card: #1b1d22; --ink: #e7e8ea; --soft: #989ea9; --rule: #2d3037;
    --one: #8ea6ff; --two: #ff9f5a; --three: #4fc3d6; --four: #d98bee; --five: #a3cf5c; --six: #9aa1ab;
    --right: #69c47c; --wrong: #ff8a80; --wrong-back: #4a2424;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; padding: 40px 28px 72px; max-width: 1060px; background: var(--paper); color: var(--ink);
  font: 15px/1.55 ui-sans-serif, system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "Noto Sans CJK SC",
    "PingFang SC", "Microsoft YaHei", sans-serif;
}
header p { margin: 0; color: var(--soft); font-size: 13px; letter-spacing: 0.04em; }
h1 { margin: 2px 0 20px; font-size: 30px; line-height: 1.2; letter-spacing: -0.015em; overflow-wrap: anywhere; }
h2 { margin: 44px 0 14px; font-size: 19px; letter-spacing: -0.005em; }
h3 { display: flex; flex-wrap: wrap; gap: 0 8px; justify-content: space-between; align-items: baseline; margin: 0;
  font-size: 14px; font-weight: 600; }
h3 small { color: var(--soft); font-size: 11.5px; font-weight: 400; }
.value small { font-size: 0.55em; font-weight: 500; color: var(--soft); }
dl { display: grid; grid-template-columns: repeat(auto-fill, minmax(165px, 1fr)); gap: 14px 24px; margin: 0;
  padding: 18px 0; border: solid var(--rule); border-width: 1px 0; }
dt { color: var(--soft); font-size: 12.5px; }
dd { margin: 0; font-weight: 500; overflow-wrap: anywhere; }

.scores { display: grid; grid-template-columns: repeat(auto-fill, minmax(215px, 1fr)); gap: 16px; }
.score, .chart, .picture, .wide, .samples { background: var(--card); border: 1px solid var(--rule);
  border-radius: 10px; }
.score { padding: 16px 18px 14px; }
.score .value { margin: 2px 0 8px; font-size: 38px; line-height: 1.15; font-weight: 600; letter-spacing: -0.02em;
  font-variant-numeric: tabular-nums; }
.score .bounds { margin: 8px 0 0; color: var(--soft); font-size: 13px; }
.score code { display: block; margin-top: 8px; color: var(--soft); font-size: 11px; line-height: 1.45; }
.bar { display: block; width: 100%; height: 9px; }
.track { fill: var(--rule); } .fill { fill: var(--one); } .band { fill: var(--one); opacity: 0.45; }

.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 400px), 1fr)); gap: 16px; }
.chart { margin: 0; padding: 14px 14px 8px; max-width: 640px; }
.chart figcaption { display: flex; flex-wrap: wrap; justify-content: space-between; gap: 0 14px; padding: 0 4px 6px;
  font-size: 14px; }
.chart span { display: flex; flex-wrap: wrap; gap: 0 14px; }
.chart i { font-style: normal; font-size: 13px; color: var(--line); font-variant-numeric: tabular-nums; }
.chart svg { display: block; width: 100%; height: auto; }
.chart text { fill: var(--soft); font-size: 11.5px; font-variant-numeric: tabular-nums; }
.grid { stroke: var(--rule); stroke-width: 1; }
polyline { fill: none; stroke: var(--line); stroke-width: 2; stroke-linejoin: round; stroke-linecap: round; }
polyline.faint { stroke-width: 1; opacity: 0.3; }
circle { fill: var(--line); }
.line1 { --line: var(--one); } .line2 { --line: var(--two); } .line3 { --line: var(--three); }
.line4 { --line: var(--four); } .line5 { --line: var(--five); } .line6 { --line: var(--six); }

table { width: 100%; border-collapse: collapse; }
th { padding: 9px 14px; text-align: left; color: var(--soft); font-size: 12.5px; font-weight: 500; }
td { padding: 8px 14px; border-top: 1px solid var(--rule); vertical-align: top; overflow-wrap: anywhere; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
td:last-child:not(.number, [data-name]) { min-width: 14em; }
code { overflow-wrap: anywhere; }
.wide { overflow-x: auto; }
.samples { border-collapse: separate; border-spacing: 0; }
.sign { width: 1px; padding-right: 0; font-weight: 600; }
.right .sign { color: var(--right); } .wrong .sign { color: var(--wrong); }
mark { background: var(--wrong-back); color: var(--wrong); border-radius: 4px; padding: 1px 3px; }
.gap { display: inline-block; width: 3px; height: 1em; margin: 0 2px; border-radius: 2px; background: var(--wrong);
  vertical-align: -0.12em; }

.pictures { display: flex; flex-wrap: wrap; gap: 16px; align-items: flex-start; }
.picture { max-width: 100%; padding: 18px 20px 10px; overflow-x: auto; }
.picture svg { display: block; }
.heat { fill: var(--one); }
.heat:hover { stroke: var(--ink); stroke-width: 1.5; }

@media (max-width: 640px) {
  body { padding: 24px 14px 48px; font-size: 15px; }
  h1 { font-size: 25px; }
  dl { grid-template-columns: repeat(2, 1fr); gap: 12px 16px; }
  .scores { grid-template-columns: repeat(2, 1fr); gap: 12px; }
  .score { padding: 14px; }
  .score .value { font-size: 31px; }
  .samples thead { display: none; }
  .samples tr { display: grid; grid-template-columns: 26px 1fr; padding: 10px 12px; border-top: 1px solid var(--rule); }
  .samples tr:first-child { border-top: 0; }
  .samples td { grid-column: 2; padding: 1px 0; border: 0; }
  .samples td.sign { grid-column: 1; grid-row: 1; width: auto; }
  .samples td[data-name]::before { content: attr(data-name); display: block; color: var(--soft); font-size: 11.5px; }
}
"""
