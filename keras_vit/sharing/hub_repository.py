"""A repository on huggingface.co, or on the server that HF_ENDPOINT names."""

import dataclasses
import json
import pathlib
import re
import tempfile

from keras_vit.checkpoints.files.folders import RECORD
from keras_vit.checkpoints.public.fetch import file_digest, is_offline
from keras_vit.checkpoints.public.network import (
    attempted,
    refused,
    status_of,
)
from keras_vit.sharing.model_card import CARD, Place
from keras_vit.sharing.shared_folder import FILES
from keras_vit.version import __version__

__all__ = ["INSTALL", "HubRepository"]

INSTALL = 'Install it: pip install "keras-vision-transformer[hub]".'
ADDRESS = re.compile(
    r"(?:hf://|https://huggingface\.co/)?"
    r"(?P<name>[\w.-]+/[\w.-]+?)(?:@(?P<revision>[^@]+))?/?"
)
TOKENS = "https://huggingface.co/settings/tokens"
LOG_IN = (
    "Log in with `hf auth login`, or set HF_TOKEN to a token that may write, "
    f"from {TOKENS}."
)
CURES = {
    401: f"The token is not valid, or it may not see this repository. {LOG_IN}",
    403: (
        "Give the name of a repository that you may write to, such as one of "
        f"your own, or a token that may write, from {TOKENS}."
    ),
    404: f"Check the name, and that the token may see it. {LOG_IN}",
    409: "Somebody else changes it now: give the same command again.",
    412: "Somebody else changed it meanwhile: give the same command again.",
}


@dataclasses.dataclass(frozen=True)
class State:
    """What a repository holds, on the branch that is written to.

    Attributes:
        commit: str, its newest commit; None where there is no such branch.
        exists: bool, whether there is the repository.
        files: set of the names of its files.
        record: dict, what an earlier upload wrote, {} without one.
        card: str, SHA-256 of its README.md, or None.
    """

    commit: str | None = None
    exists: bool = False
    files: frozenset[str] = frozenset()
    record: dict = dataclasses.field(default_factory=dict)
    card: str | None = None

    @property
    def ours(self) -> dict:
        """Name of each file of an earlier upload, and its SHA-256."""
        found = self.record.get("files")
        found = found if isinstance(found, dict) else {}
        # Whoever edits the record names nothing that is not written here.
        return {name: found[name] for name in FILES if name in found}

    @property
    def keeps_card(self) -> bool:
        """Whether the card is somebody's, or one of ours that was edited."""
        return self.card is not None and self.card != self.ours.get(CARD)


@dataclasses.dataclass(frozen=True)
class HubRepository:
    """Where a model is uploaded to.

    Attributes:
        name: str, "user/name".
        revision: str, the branch, made if need be; None for the main one.
        private: bool, whether a new repository is private; None is as the
            account has it.
        overwrite: bool, whether files may be replaced that no upload of this
            package wrote.
    """

    name: str
    revision: str | None = None
    private: bool | None = None
    overwrite: bool = False

    formats = None  # No one format is expected.

    @property
    def place(self) -> Place:
        at = f"@{self.revision}" if self.revision else ""
        title = self.name.partition("/")[2]
        return Place(f"hf://{self.name}{at}", title, self.name, self.revision)

    def check(self) -> None:
        """Raises an error for all that can be known before a model is loaded.

        Raises:
            ValueError: huggingface_hub or a token is missing, or the
                repository holds files of others.
            OSError: the server refuses, or cannot be reached.
        """
        _check_name(self.name)
        api, token = _api()
        with_errors = _errors(f"{self.name!r} cannot be written to", token)
        user = with_errors(api.whoami)
        _check_role(user)
        state = with_errors(lambda: self._state(api))
        if state.exists:
            with_errors(lambda: _check_access(api, self.name))
        else:
            _check_owner(self.name, user)
        self._check_files(state)

    def upload(self, folder: pathlib.Path, message: str | None = None) -> str:
        """Uploads a folder in one commit.

        Files of an earlier upload that the folder no longer has are removed;
        what others put there stays, and a README.md that was edited too.

        Args:
            folder: what `write_folder` wrote.
            message: str, of the commit.

        Returns:
            The address of the page.

        Raises:
            ValueError: as `check`.
            OSError: the server refuses, or cannot be reached.
        """
        api, token = _api()
        record = json.loads((folder / RECORD).read_text(encoding="utf-8"))
        what = f"The upload to {self.name!r} failed"

        def work():
            state = self._state(api)
            self._check_files(state)
            # An answer may have been lost: then all is there already.
            there = {*record["files"], RECORD} <= state.files
            if not (state.record == record and there):
                self._commit(api, state, folder, message)

        _errors(what, token)(work)
        tree = f"/tree/{self.revision}" if self.revision else ""
        return f"{api.endpoint}/{self.name}{tree}"

    def _state(self, api) -> State:
        from huggingface_hub.errors import (
            RepositoryNotFoundError,
            RevisionNotFoundError,
        )

        try:
            found = api.repo_info(self.name, revision=self.revision)
        except RevisionNotFoundError:
            return State(exists=True)
        except RepositoryNotFoundError as error:
            if status_of(error) == 404:
                return State()
            raise
        files = frozenset(x.rfilename for x in found.siblings or ())
        with tempfile.TemporaryDirectory() as folder:

            def fetched(name):
                if name not in files:
                    return None
                path = api.hf_hub_download(
                    self.name, name, revision=found.sha, local_dir=folder
                )
                return pathlib.Path(path)

            card, record = fetched(CARD), fetched(RECORD)
            return State(
                found.sha,
                True,
                files,
                _read_record(record),
                card and file_digest(card),
            )

    def _check_files(self, state) -> None:
        """Refuses to replace the model of somebody else."""
        theirs = state.files & set(FILES) - state.ours.keys() - {CARD, RECORD}
        if theirs and not self.overwrite:
            raise ValueError(
                f"{self.name!r} holds {', '.join(sorted(theirs))}, which no "
                "upload of keras_vit wrote. Give another name or another "
                "branch (--revision), or --overwrite to replace them."
            )

    def _commit(self, api, state, folder, message) -> None:
        from huggingface_hub import CommitOperationAdd, CommitOperationDelete

        if not state.exists:
            api.create_repo(self.name, private=self.private, exist_ok=True)
        if state.commit is None and self.revision:
            api.create_branch(self.name, branch=self.revision, exist_ok=True)
        names = {path.name for path in folder.iterdir()}
        if state.keeps_card and not self.overwrite:
            names.discard(CARD)
        gone = (state.ours.keys() & state.files) - names - {CARD}
        api.create_commit(
            self.name,
            [
                *(CommitOperationAdd(x, folder / x) for x in sorted(names)),
                *(CommitOperationDelete(x) for x in sorted(gone)),
            ],
            commit_message=message
            or f"Upload a model with keras_vit {__version__}",
            revision=self.revision,
            parent_commit=state.commit,
        )


def _api():
    """Return (client of the hub, token)."""
    try:
        import huggingface_hub
    except ImportError as error:
        raise ValueError(
            "huggingface_hub, which uploads models, is not installed. "
            f"{INSTALL}"
        ) from error
    if is_offline():
        raise ValueError(
            "HF_HUB_OFFLINE is set, and an upload needs the network. Unset "
            "it, or write a folder with --dry_run."
        )
    token = huggingface_hub.get_token()
    if not token:
        raise ValueError(f"There is no token of huggingface.co. {LOG_IN}")
    return huggingface_hub.HfApi(
        token=token, library_name="keras_vit", library_version=__version__
    ), token


def _errors(what, token):
    """From work on the hub to its result, or to an error in one line."""

    def run(work):
        try:
            return attempted(work)
        except ValueError as error:
            if status_of(error) is None:  # One of ours.
                raise
            refused(error, what, CURES, token)
        except Exception as error:
            refused(error, what, CURES, token)

    return run


def _check_name(name) -> None:
    from_user, _, own = name.partition("/")
    for part in (from_user, own):
        if not re.fullmatch(r"(?!.*(--|\.\.))[\w][\w.-]{0,95}(?<![.-])", part):
            raise ValueError(
                "A repository is user/name, of letters, digits, '-', '_' and "
                f"'.', none of them twice in a row. Received: {name!r}."
            )


def _check_access(api, name) -> None:
    """Asks whether the token may write to a repository that there is."""
    try:
        api.auth_check(name, write=True)
    except Exception as error:
        if status_of(error) != 404:  # Of a server without that address.
            raise


def _check_role(user) -> None:
    """Refuses a token that may only read."""
    access = (user.get("auth") or {}).get("accessToken") or {}
    if access.get("role") == "read":
        raise ValueError(
            f"The token of {user.get('name')!r} may only read. {LOG_IN}"
        )


def _check_owner(name, user) -> None:
    owner = name.partition("/")[0]
    own = [user.get("name"), *(x.get("name") for x in user.get("orgs") or ())]
    if owner not in own:
        names = ", ".join(filter(None, own))
        raise ValueError(
            f"There is no {name!r}, and you may not make it: the token is of "
            f"{names}. Give the name of a repository of yours, such as "
            f"'{own[0]}/{name.partition('/')[2]}'."
        )


def _read_record(path) -> dict:
    try:
        content = json.loads(path.read_text("utf-8")) if path else {}
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}
