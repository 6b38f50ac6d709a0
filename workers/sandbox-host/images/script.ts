/** What a builder that built says last. */
export const BUILT = 'rollout-image-built';
/** How what is said of a build that was stopped begins; one of {@link StopReason} follows. */
export const STOPPED = 'rollout-image-stopped';
/** What a build passed: bytes or files that it may have, or what has to stay free of the disk. */
export type StopReason = 'bytes' | 'files' | 'disk';

/** A bound for files comes with that for bytes: one for each of these, as many as disks are commonly made for. */
export const BYTES_PER_FILE = 16 * 1024;

/**
 * Builds an image, in bash. Runs under the lock (flock(1): the kernel lets go of it when its holders die). Arguments:
 * image, folder for what is temporary, source, most bytes of that folder, bytes that have to stay free of its disk, program
 * with flags. Beside and renamed: what has the image's name is whole. What builds that were killed have left goes
 * first: nobody holds their locks.
 *
 * What is unpacked is measured while it is: the builder has a process group of its own, which is told to end (it then clears
 * up itself) and killed, when it is over a bound. One file alone is held to the bound by the kernel (`ulimit -f`), however
 * fast it is written.
 */
export const BUILD = `
set -e
image=$1 temporary=$2 source=$3 most=$4 least=$5
shift 5
[ ! -e "$image" ] || exit 0
# An image may have folders that its owner may neither read nor empty, but for privileges; some may be of ids that he was given.
over_own=()
if [ $EUID != 0 ]; then
  for ids in --map-auto ''; do
    over_own=(unshare --user --map-root-user $ids --)
    ! "\${over_own[@]}" true 2>/dev/null || break
    over_own=()
  done
fi
builder=
end() {
  if [ "$builder" ] && kill -TERM -- -$builder 2>/dev/null; then
    for _ in {1..30}; do
      kill -0 -- -$builder 2>/dev/null || break
      pause
    done
    kill -KILL -- -$builder 2>/dev/null || :
  fi
  # It may yet be written to by what was just killed.
  for _ in {1..30}; do
    "\${over_own[@]}" rm -rf -- "$temporary" 2>/dev/null || rm -rf -- "$temporary" 2>/dev/null || :
    [ -e "$temporary" ] || break
    pause
  done
}
exec 9<> <(:) # a pipe that nothing comes from: a pause without a process
pause() { read -r -t 0.1 -u 9 _ || :; }
used() { "\${over_own[@]}" du -s "$1" -- "$temporary" 2>/dev/null | cut -f1; }
check() {
  local disk
  disk=$(stat -f -c '%a * %S' -- "$temporary")
  if ((disk < least)); then echo ${STOPPED} disk
  elif (($(used --block-size=1) > most)); then echo ${STOPPED} bytes
  elif (($(used --inodes) > most / ${BYTES_PER_FILE})); then echo ${STOPPED} files
  else return 0
  fi
  exit 1
}
for left in "\${image%/*}"/*.building; do
  [ ! -d "$left" ] ||
    flock --nonblock "\${left%.building}.lock" "\${over_own[@]}" rm -rf -- "$left" || :
done
"\${over_own[@]}" rm -rf -- "$temporary"
mkdir -p -- "$temporary"
trap end EXIT
set -m
APPTAINER_TMPDIR=$temporary SINGULARITY_TMPDIR=$temporary setpriv --pdeathsig KILL bash -c \\
  'ulimit -f "$1"; shift; exec "$@"' bounded $(((most + 1023) / 1024)) "$@" "$temporary/image.sif" "$source" 9<&- &
builder=$!
set +m
while kill -0 $builder 2>/dev/null; do
  check
  pause
done
wait $builder
mv -T -- "$temporary/image.sif" "$image"
echo ${BUILT}`;
