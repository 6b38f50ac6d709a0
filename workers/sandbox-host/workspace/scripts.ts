/**
 * What runs beside a sandbox, over its workspace. Arguments of all: the folder that holds `workspace` and `start`,
 * an empty folder to write to, and what each says.
 */

/** Statuses by which a script says what kept it. */
export const MISSING = 127;
export const NOT_AS_ASKED = 66;
export const UNREADABLE = 65;

const NEEDS = (program: string): string =>
  `command -v ${program} >/dev/null || { echo ${program} >&2; exit ${MISSING}; }`;

/**
 * `by_length <file>`: of the paths that come in, those that the system takes (4095 bytes, some of which lead to the
 * workspace) go out, the rest into the file. What is not deep cannot be too long.
 */
const BY_LENGTH = `
root=$1 scratch=$2
by_length() {
  local path
  while IFS= read -r -d '' path; do
    if ((\${#path} <= 3900)); then printf '%s\\0' "$path"; else printf '%s\\0' "$path" >> "$1"; fi
  done
}
count() { if [ -e "$1" ]; then tr -cd '\\0' < "$1" | wc -c; else echo 0; fi; }`;

/**
 * Git with a folder and settings of its own. What the workspace has of either is never asked: `.git` in it is no
 * repository, and `info/attributes`, which goes before every .gitattributes, takes back what could change content
 * or run a program. Paths that only other systems find ambiguous are fine.
 */
const GIT = `
set -euo pipefail
${NEEDS('git')}
${BY_LENGTH}
export HOME=$scratch GIT_DIR=$root/start/git GIT_WORK_TREE=$root/workspace
export GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null GIT_ATTR_NOSYSTEM=1
git() {
  command git --no-pager -c core.hooksPath=/dev/null -c core.fsmonitor=false -c core.untrackedCache=false \\
    -c core.attributesFile=/dev/null -c core.excludesFile=/dev/null -c core.fileMode=true -c core.symlinks=true \\
    -c core.protectNTFS=false -c core.protectHFS=false -c core.fsync=none -c core.looseCompression=1 \\
    -c core.bigFileThreshold=16m -c core.autocrlf=false -c core.safecrlf=false "$@"
}
# Paths of git's kind. What git would read of its own accord, and wait at for ever, ends it.
files() {
  local wanted=(-iname .git -prune -o ! -ipath '*/.git/*' \\( -type f -o -type l ! -iname .gitmodules \\)) path
  [ -z "$(find . -name .gitattributes -type p -print -quit)" ] ||
    { echo 'a pipe is called .gitattributes, which git would read for ever' >&2; exit ${UNREADABLE}; }
  find . -mindepth 1 -maxdepth 15 "\${wanted[@]}" -printf '%P\\0'
  find . -mindepth 16 "\${wanted[@]}" -printf '%P\\0' | by_length "$scratch/omitted"
}
# As "big files" all go into one pack: a file for each takes ten times as long.
add() { git -c core.bigFileThreshold=1 update-index -z --add "$@" --stdin; }
cd "$GIT_WORK_TREE"
`;

/** Records the workspace as its start. Prints git's name for its content. */
export const START = `${GIT}
rm -rf -- "$root"/start/*
(unset GIT_WORK_TREE; git init --quiet --bare --template= "$GIT_DIR")
git config core.bare false
mkdir -p "$GIT_DIR/info"
echo '* -text -ident -filter !crlf !eol !diff !working-tree-encoding' > "$GIT_DIR/info/attributes"
export GIT_INDEX_FILE=$root/start/index
files | add
tree=$(git write-tree)
echo "$tree" > "$root/start/tree.new"
mv -T -- "$root/start/tree.new" "$root/start/tree"
echo "$tree"
`;

/**
 * Arguments: a folder of the workspace or nothing, then patterns that are left out. Prints the patch; how many files
 * it changes and how many were omitted go to standard error. The start stays as it is.
 */
export const DIFF = `${GIT}
folder=$3; shift 3
[ -e "$root/start/tree" ] || exit ${NOT_AS_ASKED}
tree=$(<"$root/start/tree")
export GIT_INDEX_FILE=$scratch/index GIT_OBJECT_DIRECTORY=$scratch/objects
export GIT_ALTERNATE_OBJECT_DIRECTORIES=$GIT_DIR/objects
mkdir "$scratch/objects"
cp -p -- "$root/start/index" "$GIT_INDEX_FILE" # with its time, by which git knows what it must read again
files | sort -z > "$scratch/now"
git ls-files -z | sort -z | comm -z -23 - "$scratch/now" > "$scratch/gone"
git update-index -z --force-remove --stdin < "$scratch/gone"
add --replace < "$scratch/now"
paths=(":(top,literal)$folder")
pattern=$(printf %s "$folder" | sed 's/[][*?\\\\]/\\\\&/g')
for excluded; do paths+=(":(top,exclude,glob)\${pattern:+$pattern/}$excluded"); done
[ -n "$folder" ] || paths[0]=:/
compare() {
  git diff --cached --no-ext-diff --no-textconv --no-renames --no-color \${folder:+--relative="$folder/"} "$@" \\
    "$tree" -- "\${paths[@]}"
}
compare --name-only -z > "$scratch/changed"
compare --binary --full-index --src-prefix=a/ --dst-prefix=b/
count "$scratch/changed" >&2 # after what git has to say of attributes
count "$scratch/omitted" >&2
`;

/**
 * Prints the archive of both folders; how many files were omitted goes to standard error. What changes under it is a
 * notice of tar's (1), not a failure.
 */
export const SNAPSHOT = `
${NEEDS('tar')}
${BY_LENGTH}
cd -- "$root" || exit
: > "$scratch/omitted"
find workspace -mindepth 16 -print0 | by_length "$scratch/omitted" >/dev/null
tar --create --format=gnu --sparse --one-file-system --numeric-owner \\
  --no-wildcards --anchored --null --exclude-from="$scratch/omitted" -- workspace start
status=$?
((status < 2)) || exit $status
count "$scratch/omitted" >&2
`;

/** Takes an archive from standard input into both folders, of which the first is empty. */
export const RESTORE = `
${NEEDS('tar')}
cd -- "$1" || exit
[ -z "$(ls -A workspace)" ] || exit ${NOT_AS_ASKED}
tar --extract --preserve-permissions --no-same-owner --delay-directory-restore
`;
