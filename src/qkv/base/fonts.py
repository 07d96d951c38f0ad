"""Fonts for figures, such that Chinese and Japanese characters show."""

WANTED = ["DejaVu Sans", "Noto Sans CJK SC", "Noto Sans CJK JP", "WenQuanYi Zen Hei", "PingFang SC", "Microsoft YaHei"]


def available_fonts() -> list[str]:
    """Return the installed fonts for matplotlib to try in order until one has the character."""
    from matplotlib import font_manager

    installed = {font.name for font in font_manager.fontManager.ttflist}
    return [name for name in WANTED if name in installed]
