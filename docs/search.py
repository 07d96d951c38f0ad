"""Search of the site: English words by their stems, Chinese ones by pairs of characters, in one index."""

import re

from sphinx.search.en import SearchEnglish

CHINESE = "\u3400-\u4dbf\u4e00-\u9fff"


class SearchBoth(SearchEnglish):
    """Splits pages as `js_splitter_code` splits what a reader types."""

    js_splitter_code = f"""
function splitQuery(query) {{
  const words = query.match(/[{CHINESE}]+|[^\\s\\p{{P}}\\p{{S}}{CHINESE}]+/gu) || [];
  return words.flatMap((word) =>
    /[{CHINESE}]/.test(word) && word.length > 2 ? [...word].slice(1).map((character, n) => word[n] + character) : [word]);
}}
"""

    def split(self, input: str) -> list[str]:
        """Return words; of Chinese, each character and each pair of neighbours."""
        found: list[str] = []
        for run in re.findall(rf"[{CHINESE}]+|[^\W{CHINESE}]+", input):
            found += [run] if not re.match(f"[{CHINESE}]", run) else [*run, *(run[n : n + 2] for n in range(len(run) - 1))]
        return found
