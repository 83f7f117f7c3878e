#!/bin/sh
# Builds k3 and k3-pack and installs them with completions and manual pages.
set -eu

usage() {
    cat <<'END'
Usage: scripts/install.sh [OPTIONS]

Builds k3 and k3-pack and installs them, their manual pages and completions for
bash, zsh and fish. Needs no root where PREFIX may be written.

Options:
  --prefix DIR   where to install [default: ~/.local]
  --destdir DIR  put everything below DIR, as packagers do; PREFIX stays what it
                 is used under
  --bin-dir DIR  install the programs that are there, build nothing
  --uninstall    remove what an installation into PREFIX wrote
  -h, --help     this text

Examples:
  scripts/install.sh
  sudo scripts/install.sh --prefix /usr/local --bin-dir target/release
  scripts/install.sh --uninstall
END
}

fail() {
    printf 'install.sh: %s\n' "$1" >&2
    exit "${2:-1}"
}

prefix=
destdir=
bin_dir=
action=install
while [ $# -gt 0 ]; do
    case $1 in
        --prefix | --destdir | --bin-dir)
            [ $# -ge 2 ] || fail "$1 needs a directory" 2
            [ -n "$2" ] || fail "$1: the directory has no name" 2
            case $1 in
                --prefix) prefix=$2 ;;
                --destdir) destdir=$2 ;;
                --bin-dir) bin_dir=$2 ;;
            esac
            shift 2
            ;;
        --uninstall)
            action=uninstall
            shift
            ;;
        -h | --help)
            usage
            exit 0
            ;;
        *) fail "unknown option $1; --help lists them" 2 ;;
    esac
done

if [ -z "$prefix" ]; then
    [ -n "${HOME:-}" ] || fail 'HOME is not set: name a directory with --prefix' 2
    prefix=$HOME/.local
fi
case $prefix in
    /*) ;;
    *) prefix=$PWD/$prefix ;;
esac
root=$destdir$prefix
bin=$root/bin
man=$root/share/man/man1
bash=$root/share/bash-completion/completions
zsh=$root/share/zsh/site-functions
fish=$root/share/fish/vendor_completions.d
# What was written, so that it can be removed: the pages change with the program.
list=$root/share/k3/installed-files

remove_listed() {
    [ -f "$list" ] || return 0
    # Names below the prefix, one a line; nothing else is ever removed.
    while IFS= read -r name; do
        case $name in
            '' | /* | *..*) fail "$list: not a list of this script: $name" ;;
            *) rm -f "$root/$name" ;;
        esac
    done <"$list"
    rm -f "$list"
    rmdir "$root/share/k3" 2>/dev/null || true
}

if [ "$action" = uninstall ]; then
    [ -f "$list" ] || fail "nothing to remove: $list is not there"
    remove_listed
    printf 'removed k3 from %s\n' "$root"
    exit 0
fi

if [ -z "$bin_dir" ]; then
    command -v cargo >/dev/null || fail 'no cargo: install a Rust toolchain (https://rustup.rs)'
    source=$(cd "$(dirname "$0")/.." && pwd)
    # Cargo runs there, so a relative target directory starts there.
    target=${CARGO_TARGET_DIR:-target}
    case $target in
        /*) ;;
        *) target=$source/$target ;;
    esac
    # The packages of a plain `cargo build`: another selection has other features,
    # and what is built already would be built again.
    (cd "$source" && cargo build --release --locked --target-dir "$target")
    bin_dir=$target/release
fi
for program in k3 k3-pack; do
    [ -x "$bin_dir/$program" ] || fail "$bin_dir/$program: no such program"
done

stage=$(mktemp -d)
# What is written beside its place, before it has its name.
new=
trap 'rm -rf "$stage"; [ -z "$new" ] || rm -f "$new"' EXIT
trap 'exit 130' INT TERM
mkdir "$stage/man"
"$bin_dir/k3" man "$stage/man"
for program in k3 k3-pack; do
    "$bin_dir/k3" completions bash --program "$program" >"$stage/$program.bash"
    "$bin_dir/k3" completions zsh --program "$program" >"$stage/$program.zsh"
    "$bin_dir/k3" completions fish --program "$program" >"$stage/$program.fish"
done

for directory in "$bin" "$man" "$bash" "$zsh" "$fish" "$root/share/k3"; do
    reason=$(mkdir -p "$directory" 2>&1) ||
        fail "$root: cannot be written ($reason); choose another --prefix"
done
# Of an older installation nothing stays that this one does not have.
remove_listed
mkdir -p "$root/share/k3"

put() { # MODE FROM TO
    # Recorded first: what is half installed can be removed too.
    printf '%s\n' "${3#"$root"/}" >>"$list"
    # Beside and renamed: a program that runs keeps its file.
    new=$3.new
    reason=$({ cp "$2" "$new" && chmod "$1" "$new" && mv -f "$new" "$3"; } 2>&1) ||
        fail "$3: cannot be written ($reason)"
    new=
}

for program in k3 k3-pack; do
    put 755 "$bin_dir/$program" "$bin/$program"
    put 644 "$stage/$program.bash" "$bash/$program"
    put 644 "$stage/$program.zsh" "$zsh/_$program"
    put 644 "$stage/$program.fish" "$fish/$program.fish"
done
for page in "$stage"/man/*.1; do
    put 644 "$page" "$man/${page##*/}"
done

printf 'installed k3 and k3-pack into %s\n' "$bin"
# shellcheck disable=SC2016 # PATH is for the reader's shell
case :${PATH:-}: in
    *":$prefix/bin:"*) ;;
    *) printf 'add it to PATH: export PATH="%s:$PATH"\n' "$prefix/bin" ;;
esac
