/** Resolves when `condition` holds. A loaded machine may take its time. */
export async function until(condition: () => boolean | Promise<boolean>, what: string): Promise<void> {
  const giveUpAt = performance.now() + 240_000;
  while (!(await condition())) {
    if (performance.now() > giveUpAt) throw new Error(`waited in vain: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}
