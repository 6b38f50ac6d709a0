/**
 * True if bytes end within a character: the rule by which llama.cpp holds tokens back (it looks for a lead
 * byte among the last three whose character is not yet complete).
 */
export function endsInsideCharacter(bytes: readonly number[]): boolean {
  for (let back = 1; back <= Math.min(3, bytes.length); back++) {
    const byte = bytes[bytes.length - back] ?? 0;
    if ((byte & 0xe0) === 0xc0 && back < 2) return true;
    if ((byte & 0xf0) === 0xe0 && back < 3) return true;
    if ((byte & 0xf8) === 0xf0) return true;
  }
  return false;
}
