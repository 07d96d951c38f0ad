"""Fonts for pictures."""

WANTED = ["DejaVu Sans", "Noto Sans CJK SC", "Noto Sans CJK JP", "WenQuanYi Zen Hei", "PingFang SC", "Microsoft YaHei"]


def available_fonts() -> list[str]:
    """The fonts here that matplotlib may go through until one has the character."""
    from matplotlib import font_manager

    here = {font.name for font in font_manager.fontManager.ttflist}
    return [name for name in WANTED if name in here]
