import { randomNumbers } from '../client/eval/random.ts';

/** Numbers that a seed alone decides, so that a run's plan can be made again. */
export class Random {
  /** In [0, 1). */
  readonly next: () => number;

  constructor(seed: number) {
    this.next = randomNumbers(seed);
  }

  /** A whole number from `low` to `high`, both included. */
  between(low: number, high: number): number {
    return low + Math.floor(this.next() * (high - low + 1));
  }

  /** One of a list that is not empty. */
  pick<T>(list: readonly T[]): T {
    return list[Math.floor(this.next() * list.length)] as T;
  }

  /** Up to `count` of a list, each at most once. */
  some<T>(list: readonly T[], count: number): T[] {
    const left = [...list];
    const picked: T[] = [];
    while (picked.length < count && left.length > 0) {
      picked.push(...left.splice(Math.floor(this.next() * left.length), 1));
    }
    return picked;
  }
}
