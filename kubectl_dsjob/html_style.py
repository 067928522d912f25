"""The style of the page of a run. It loads nothing: no font, no image, no script."""

from __future__ import annotations

from typing import Final

STYLE: Final = """
:root{color-scheme:light dark;--bg:#f6f7f9;--card:#fff;--text:#1c2733;--soft:#5d6b7a;
--line:#dfe4ea;--completed:#2a9d6f;--failed:#d1352b;--active:#2f6fde;--waiting:#b9c2cc;
--unreachable:#dd8a06;--removed:#8a7fb5}
@media(prefers-color-scheme:dark){:root{--bg:#12171d;--card:#1b222b;--text:#e3e9f0;--soft:#94a3b3;
--line:#2d3742;--completed:#3bb583;--failed:#f0584d;--active:#5b93f5;--waiting:#4d5966;
--unreachable:#f0a32a;--removed:#a599d6}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--text);
font:15px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
main{max-width:76rem;margin:0 auto;padding:2rem 1.25rem 4rem}
header{display:flex;flex-wrap:wrap;align-items:center;gap:.25rem 1rem;margin-bottom:.25rem}
h1{font-size:1.7rem;margin:0;overflow-wrap:anywhere}
h2{font-size:1.05rem;margin:0 0 .75rem}
.where{color:var(--soft);margin:0 0 1.5rem;overflow-wrap:anywhere}
.phase{padding:.15rem .8rem;border-radius:99rem;color:#fff;font-weight:600;background:var(--soft)}
.phase.Succeeded{background:var(--completed)}.phase.Failed{background:var(--failed)}
.phase.Running{background:var(--active)}.phase.Paused{background:var(--unreachable)}
section{background:var(--card);border:1px solid var(--line);border-radius:12px;
padding:1.1rem 1.25rem;margin:0 0 1.1rem}
.facts{display:grid;grid-template-columns:repeat(auto-fit,minmax(8.5rem,1fr));gap:.75rem;
background:none;border:0;padding:0}
.facts div{background:var(--card);border:1px solid var(--line);border-radius:12px;
padding:.7rem 1rem}
.facts dt{color:var(--soft);font-size:.85rem}.facts dd{margin:0;font-size:1.5rem;font-weight:650}
.facts .bad dd{color:var(--failed)}
dl{margin:0 0 1.1rem}
.message{font-size:1.02rem;border-left:4px solid var(--soft);overflow-wrap:anywhere}
.message.Failed{border-left-color:var(--failed)}.message.Succeeded{border-left-color:var(--completed)}
.bar{display:block;width:100%;height:14px;border-radius:7px;margin-bottom:1rem;
background:var(--waiting)}
.legend{display:flex;flex-wrap:wrap;gap:.3rem 1.2rem;list-style:none;padding:0;margin:.9rem 0 0;
color:var(--soft)}
.legend i,td i{display:inline-block;width:.75em;height:.75em;border-radius:3px;margin-right:.45em}
.grid{display:grid;gap:3px}
.small{grid-template-columns:repeat(auto-fill,minmax(9px,1fr));gap:2px}
.medium{grid-template-columns:repeat(auto-fill,minmax(16px,1fr))}
.large{grid-template-columns:repeat(auto-fill,minmax(11rem,1fr));gap:8px}
.grid i{aspect-ratio:1;border-radius:2px;max-height:18px}
.large i{aspect-ratio:auto;max-height:none;border-radius:8px;padding:.45rem .7rem;color:#fff;
font-style:normal;overflow:hidden;text-overflow:ellipsis;white-space:nowrap}
.Waiting{background:var(--waiting);fill:var(--waiting)}
.large .Waiting{color:var(--text)}
.Completed{background:var(--completed);fill:var(--completed)}
.Failed{background:var(--failed);fill:var(--failed)}
.Active{background:var(--active);fill:var(--active)}
.Unreachable{background:var(--unreachable);fill:var(--unreachable)}
.Removed{background:var(--removed);fill:var(--removed)}
.message.Failed,.message.Succeeded{background:var(--card)}
.chart{display:block;width:100%;height:170px;overflow:visible}
.chart .area{fill:var(--completed);opacity:.18}
.chart .curve{fill:none;stroke:var(--completed);stroke-width:2;vector-effect:non-scaling-stroke}
.chart .frame{stroke:var(--line);vector-effect:non-scaling-stroke}
.axis{display:flex;justify-content:space-between;color:var(--soft);font-size:.85rem}
ol{margin:.9rem 0 0;padding:0;list-style:none}
ol li{border-left:2px solid var(--line);padding:.2rem 0 .2rem 1rem;overflow-wrap:anywhere}
ol b{font-variant-numeric:tabular-nums;margin-right:.6em}
.failure{border-top:1px solid var(--line);padding:.7rem 0}.failure:first-of-type{border-top:0}
.failure p{margin:0 0 .35rem}.failure span{color:var(--soft)}
pre{margin:0;padding:.65rem .9rem;border-radius:8px;background:var(--bg);white-space:pre-wrap;
overflow-wrap:anywhere;font:13px/1.5 ui-monospace,"DejaVu Sans Mono",Menlo,Consolas,monospace}
.scroll{overflow:auto;max-height:36rem}
table{border-collapse:collapse;width:100%;font-size:.92rem}
th,td{text-align:left;padding:.35rem .75rem .35rem 0;border-bottom:1px solid var(--line);
vertical-align:top}
th{color:var(--soft);font-weight:600;white-space:nowrap;position:sticky;top:0;
background:var(--card)}
td{overflow-wrap:anywhere}td:first-child{white-space:nowrap}
footer{color:var(--soft);font-size:.85rem}
@media print{body{background:#fff}.scroll{max-height:none}section{break-inside:avoid-page}
*{print-color-adjust:exact;-webkit-print-color-adjust:exact}}
"""
