"""The language that the script of texts shows."""

import pytest

from qkv.text.scripts import detect_language


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
