"""The language that the script of texts shows."""

import pytest

from qkv.text.scripts import detect_language, script_contradicts


@pytest.mark.parametrize(
    ("texts", "language"),
    [
        (["打开灯", "关闭", "设备 Philips Hue 不可用"], "zh"),
        (["打開燈", "OK", "Wi-Fi 網路"], "zh"),
        (["設定", "デバイスを開く", "利用不可"], "ja"),
        (["ありがとう"], "ja"),
        (["불을 켜세요", "Wi-Fi 연결"], "ko"),
        (["เปิดไฟ"], "th"),
        (["Turn on the light", "猫 means cat in Chinese, and 狗 means dog"], None),
        (["Привет, мир", "größer", "Γειά"], None),
        (["123", "...", ""], None),
        ([], None),
    ],
)
def test_the_language_of_texts(texts, language):
    assert detect_language(texts) == language


@pytest.mark.parametrize(
    ("language", "texts", "contradicts"),
    [
        ("de", ["打开灯", "关闭"], True),
        ("ko", ["デバイスを開く"], True),
        ("zh-Hans", ["打开灯"], False),
        ("jpn", ["設定", "利用不可"], False),
        ("zh", ["Das Licht", "Öffnen"], True),
        ("zh", ["Philips Hue Bridge is the name of the 灯"], False),
        ("de", ["Das Licht"], False),
        ("zh", ["123"], False),
        ("target", ["打开灯"], False),
    ],
)
def test_a_script_that_a_language_is_not_written_in(language, texts, contradicts):
    assert script_contradicts(language, texts) == contradicts
