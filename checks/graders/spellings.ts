/** Ways in which people and models write one number as their answer. Pure. */
export function spellingsOf(gold: string): string[] {
  const plain = gold.replaceAll(',', '');
  const [whole = '', decimals] = plain.replace('-', '').split('.');
  const sign = plain.startsWith('-') ? '-' : '';
  const grouped =
    sign + whole.replace(/\B(?=(\d{3})+$)/g, ',') + (decimals === undefined ? '' : `.${decimals}`);
  const latex = grouped.replaceAll(',', '{,}');
  const doubled = decimals === undefined ? `${BigInt(plain) * 2n}/2` : `${Number(plain) * 2}/2`;
  return [
    `So it is \\boxed{${plain}}.`,
    plain,
    `#### ${grouped}`,
    `The final answer is ${grouped}.`,
    `**Answer:** **${plain}**`,
    `$\\boxed{${latex}}$`,
    `\\boxed{${plain} \\text{ units}}`,
    `The answer is ${plain} dollars.`,
    `\\boxed{\\frac{${doubled.split('/')[0]}}{2}}`,
    decimals === undefined ? `\\boxed{${plain}.0}` : `\\boxed{${plain}0}`,
  ];
}

/** Answers that are nearly that number. Pure. */
export function nearMissesOf(gold: string): string[] {
  const value = Number(gold.replaceAll(',', ''));
  return [
    `\\boxed{${value + 1}}`,
    `The final answer is ${value === 0 ? 10 : -value}.`,
    `\\boxed{${value * 10 + 1}}`,
    `\\boxed{${value} or ${value + 2}}`,
    `It could be ${value}, but I am not sure about that, so I would rather not say.`,
    `\\boxed{}`,
  ];
}
