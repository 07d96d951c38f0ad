"""What `qkv serve` serves and how: the options of the command line and of a YAML file, `--config FILE`."""

from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from qkv.base.config import Config, parse, read_yaml
from qkv.base.errors import ConfigError
from qkv.serving.authentication import read_keys
from qkv.serving.settings import DEVICE_DEFAULTS, HostName, Network, Origin, ServiceSettings

LOOPBACK = ("localhost", "127.0.0.1", "::1")
AT_START = ("workers", "host", "port", "log_format")  # keys that a running service cannot change
PATHS = ("keys", "admin_keys", "model_root")


class ServiceConfig(Config):
    """All options of a service; `limits` has any key of ServiceSettings."""

    models: dict[str, str] = Field(default={})  # names, and folders of runs, exports or word vectors
    adapters: dict[str, str] = Field(default={})  # names, and folders of adapters of these runs
    languages: dict[str, tuple[str, str]] = Field(default={})  # of translators whose runs do not name them: source, target
    model_root: str | None = None  # folder from which POST /admin/models may load others
    device: str = "auto"  # auto, cpu, cuda or cuda:N
    engine: str | None = None  # of translators: own, ctranslate2 or onnx
    precision: str | None = None  # with engine ctranslate2: float32, int8 or bf16
    workers: int = Field(default=1, ge=1, le=256)  # processes
    host: str = "127.0.0.1"
    port: int = Field(default=8000, ge=0, le=65535)  # 0: any free one
    names: tuple[HostName, ...] = ()  # host names that requests may use beside localhost; none: any, or with 127.0.0.1 no other
    origins: tuple[Origin, ...] = ()  # web origins whose pages may send requests
    trusted_proxies: tuple[Network, ...] = ()  # addresses or networks whose X-Forwarded-For names the client
    keys: str | None = None  # file of API keys
    admin_keys: str | None = None  # file of keys for /admin; none: there is no /admin
    rate: int | None = Field(default=None, ge=1)  # requests a minute of a key, or of an address where there are no keys
    limits: dict[str, Any] = Field(default={})
    log_format: Literal["text", "json"] = "text"

    def settings(self, device: str = "cpu") -> ServiceSettings:
        """Return the limits with their defaults for this type of device; read the files of keys, and check the root of models."""
        if self.model_root is not None and not Path(self.model_root).is_dir():
            raise ConfigError(f"--model-root {self.model_root}: no such folder; make it, or name another")
        keys, admin_keys = (read_keys(Path(file)) if file else () for file in (self.keys, self.admin_keys))
        administrators = {key.digest for key in admin_keys}
        if both := [key.name for key in keys if key.digest in administrators]:
            raise ConfigError(
                f"the key of {both[0]!r} is in the files of --keys and of --admin-keys; "
                "give administrators keys of their own, `qkv serve --new-key NAME` makes one"
            )
        return parse(
            ServiceSettings,
            {
                **DEVICE_DEFAULTS.get(device, {}),
                "keys": keys,
                "admin_keys": admin_keys,
                "rate": self.rate,
                "origins": self.origins,
                "hosts": (*LOOPBACK, *self.names) if self.names or self.host in LOOPBACK else (),
                "proxies": self.trusted_proxies,
                **self.limits,
            },
            "limits",
        )


def read_config(file: Path | None, options: dict[str, Any]) -> ServiceConfig:
    """Return the config of a file with the options of the command line, which win; paths are relative to the file's folder."""
    values = {} if file is None else read_yaml(file)
    if file is not None:
        parse(ServiceConfig, values, str(file))
        for key in ("models", "adapters"):
            values[key] = {name: str(file.parent / folder) for name, folder in values.get(key, {}).items()}
        values |= {key: str(file.parent / values[key]) for key in PATHS if values.get(key)}
    given = {key: value for key, value in options.items() if value not in (None, [], (), {})}
    for key in ("models", "adapters", "languages", "limits"):
        given[key] = {**values.get(key, {}), **given.get(key, {})}
    config = parse(ServiceConfig, {**values, **given}, str(file or "options"))
    if not config.models:
        raise ConfigError("no run to serve was named; give the folder of one, or of several")
    if both := config.models.keys() & config.adapters.keys():
        raise ConfigError(f"two runs are called {min(both)!r}; name one of them otherwise, as NAME=FOLDER")
    if unknown := config.languages.keys() - config.models.keys() - config.adapters.keys():
        known = ", ".join([*config.models, *config.adapters])
        raise ConfigError(f"languages of {min(unknown)!r}, which is not served; give those of {known}, as NAME=en,de")
    if config.model_root is not None and config.admin_keys is None:
        raise ConfigError("--model-root is for /admin, which needs --admin-keys FILE; give that too, or leave --model-root out")
    return config


def check_change(old: ServiceConfig, new: ServiceConfig) -> None:
    """Raise if a new config differs in something that a running service cannot change."""
    for key in AT_START:
        was, now = getattr(old, key), getattr(new, key)
        if was != now:
            raise ConfigError(f"{key} was {was!r} and is now {now!r}; start the service anew for that")


def name_and_folder(given: str) -> tuple[str, Path]:
    """Split NAME=FOLDER; a folder without a name has its own."""
    name, equals, path = given.partition("=")
    if not (equals and name) or Path(given).exists():
        return Path(given).resolve().name, Path(given)
    return name, Path(path)


def name_and_languages(given: str) -> tuple[str, tuple[str, str]]:
    """Split NAME=SOURCE,TARGET."""
    name, equals, pair = given.partition("=")
    codes = [code.strip() for code in pair.split(",")]
    if not (name and equals) or len(codes) != 2 or not all(codes) or codes[0] == codes[1]:
        raise ConfigError(f"--languages {given}: the name of a model and its two languages are wanted, such as en-de=en,de")
    return name, (codes[0], codes[1])


def with_model(config: ServiceConfig, name: str, folder: str, adapter: bool) -> ServiceConfig:
    """Return a config with a model from a folder below the root of models; it replaces the one of its name."""
    if config.model_root is None:
        raise ConfigError("no folder was named from which models may be added; start the service with --model-root FOLDER")
    root = Path(config.model_root).resolve()
    try:
        path = (root / folder).resolve()  # also of links
        found = root in path.parents and path.is_dir()
    except (OSError, RuntimeError, ValueError):  # a path that cannot be, or links in a circle
        found = False
    if not found:
        raise ConfigError(f"there is no folder {folder!r} below the root of models; give a path relative to it")
    models = {**config.models, name: str(path)}  # in the place of its name: the first model is the default
    adapters = {key: value for key, value in config.adapters.items() if key != name}
    if adapter:
        del models[name]
        adapters[name] = str(path)
    if not models:
        raise ConfigError("the last model cannot become an adapter; give the adapter a name of its own")
    return config.model_copy(update={"models": models, "adapters": adapters})


def without_model(config: ServiceConfig, name: str) -> ServiceConfig:
    """Return a config without a model."""
    if name not in {**config.models, **config.adapters}:
        raise ConfigError("there is no model of that name; GET /admin/models lists those there are")
    models, adapters = ({key: folder for key, folder in each.items() if key != name} for each in (config.models, config.adapters))
    languages = {key: pair for key, pair in config.languages.items() if key != name}
    if not models:
        raise ConfigError("the last model cannot be removed; add another first, or stop the service")
    return config.model_copy(update={"models": models, "adapters": adapters, "languages": languages})
