"""Plural forms of gettext: the rule of a language, and which form takes the singular or the plural of a message."""

import gettext
import re
from collections.abc import Callable

ONE_FORM = "nplurals=1; plural=0;"
NOT_ONE = "nplurals=2; plural=(n != 1);"
MORE_THAN_ONE = "nplurals=2; plural=(n > 1);"
EAST_SLAVIC = "nplurals=3; plural=(n%10==1 && n%100!=11 ? 0 : n%10>=2 && n%10<=4 && (n%100<10 || n%100>=20) ? 1 : 2);"
WEST_SLAVIC = "nplurals=3; plural=(n==1) ? 0 : (n>=2 && n<=4) ? 1 : 2;"

# The rules that gettext's manual and the Unicode CLDR give, by language; languages that are not here have NOT_ONE.
RULES = {
    **dict.fromkeys(["bo", "dz", "id", "ja", "ka", "km", "ko", "lo", "ms", "my", "su", "th", "vi", "yo", "yue", "zh"], ONE_FORM),
    **dict.fromkeys(["ach", "ak", "am", "br", "fil", "fr", "gun", "hy", "ln", "mg", "mi", "oc"], MORE_THAN_ONE),
    **dict.fromkeys(["pt_BR", "tg", "ti", "tr", "uz", "wa"], MORE_THAN_ONE),
    **dict.fromkeys(["be", "bs", "hr", "ru", "sr", "uk"], EAST_SLAVIC),
    **dict.fromkeys(["cs", "sk"], WEST_SLAVIC),
    "pl": "nplurals=3; plural=(n==1 ? 0 : n%10>=2 && n%10<=4 && (n%100<10 || n%100>=20) ? 1 : 2);",
    "lt": "nplurals=3; plural=(n%10==1 && n%100!=11 ? 0 : n%10>=2 && (n%100<10 || n%100>=20) ? 1 : 2);",
    "lv": "nplurals=3; plural=(n%10==1 && n%100!=11 ? 0 : n != 0 ? 1 : 2);",
    "ro": "nplurals=3; plural=(n==1 ? 0 : (n==0 || (n%100 > 0 && n%100 < 20)) ? 1 : 2);",
    "sl": "nplurals=4; plural=(n%100==1 ? 0 : n%100==2 ? 1 : n%100==3 || n%100==4 ? 2 : 3);",
    "ga": "nplurals=5; plural=(n==1 ? 0 : n==2 ? 1 : n<7 ? 2 : n<11 ? 3 : 4);",
    "gd": "nplurals=4; plural=(n==1 || n==11) ? 0 : (n==2 || n==12) ? 1 : (n > 2 && n < 20) ? 2 : 3;",
    "cy": "nplurals=4; plural=(n==1) ? 0 : (n==2) ? 1 : (n != 8 && n != 11) ? 2 : 3;",
    "mt": "nplurals=4; plural=(n==1 ? 0 : n==0 || (n%100>1 && n%100<11) ? 1 : (n%100>10 && n%100<20) ? 2 : 3);",
    "ar": "nplurals=6; plural=(n==0 ? 0 : n==1 ? 1 : n==2 ? 2 : n%100>=3 && n%100<=10 ? 3 : n%100>=11 ? 4 : 5);",
    "he": "nplurals=2; plural=(n != 1);",
    "is": "nplurals=2; plural=(n%10!=1 || n%100==11);",
    "mk": "nplurals=2; plural=(n==1 || n%10==1 ? 0 : 1);",
}


class PluralRule:
    """A rule that maps a count to the index of a plural form."""

    def __init__(self, field: str):
        count = re.search(r"nplurals\s*=\s*(\d+)", field)
        formula = re.search(r"\bplural\s*=\s*([^;]+)", field)
        if not count or not formula:
            raise ValueError("nplurals and plural are wanted")
        self.field, self.forms = field, int(count[1])
        self.form_of: Callable[[int], int] = gettext.c2py(formula[1])

    def singular_forms(self, has_count: bool) -> set[int]:
        """Return the forms that take the singular message; the others take the plural.

        The form for one may also be the form for 21: then it takes the singular only where that names the count.
        """
        one = self.form_of(1)
        alone = all(self.form_of(count) != one for count in range(200) if count != 1)
        return {one} if self.forms > 1 and (alone or has_count) else set()


def plural_rule(language: str) -> PluralRule | None:
    """Return the rule of a language (de, pt_BR, zh-Hans); None if no language is known."""
    if not language:
        return None
    code = language.replace("-", "_")
    return PluralRule(RULES.get(code) or RULES.get(code.split("_")[0].lower(), NOT_ONE))
