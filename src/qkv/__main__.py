"""python -m qkv"""

from qkv.cli import main

main()
