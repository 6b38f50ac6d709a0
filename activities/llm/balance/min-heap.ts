/** A binary min-heap whose items can be given another key, and be taken out, wherever they are. */
export class MinHeap<T> {
  readonly #items: T[] = [];
  readonly #keys = new Map<T, number>();
  readonly #places = new Map<T, number>();

  get size(): number {
    return this.#items.length;
  }

  /** Puts an item in, or changes its key. */
  set(item: T, key: number): void {
    const place = this.#places.get(item) ?? this.#items.push(item) - 1;
    this.#keys.set(item, key);
    this.#places.set(item, place);
    this.#sift(item);
  }

  delete(item: T): void {
    const place = this.#places.get(item);
    if (place === undefined) return;
    const last = this.#items.pop() as T;
    this.#keys.delete(item);
    this.#places.delete(item);
    if (last === item) return;
    this.#put(last, place);
    this.#sift(last);
  }

  has(item: T): boolean {
    return this.#places.has(item);
  }

  /** The item with the lowest key that suits. Looks at no more of the heap than it must. */
  first(suits: (item: T) => boolean = () => true): T | undefined {
    const frontier = this.#items.length > 0 ? [0] : [];
    while (frontier.length > 0) {
      frontier.sort((a, b) => this.#keyAt(b) - this.#keyAt(a));
      const place = frontier.pop() as number;
      const item = this.#items[place] as T;
      if (suits(item)) return item;
      for (const child of [2 * place + 1, 2 * place + 2]) {
        if (child < this.#items.length) frontier.push(child);
      }
    }
    return undefined;
  }

  #sift(item: T): void {
    const key = this.#keys.get(item) as number;
    let place = this.#places.get(item) as number;
    while (place > 0) {
      const parent = (place - 1) >> 1;
      if (this.#keyAt(parent) <= key) break;
      this.#put(this.#items[parent] as T, place);
      place = parent;
    }
    for (;;) {
      const left = 2 * place + 1;
      if (left >= this.#items.length) break;
      const right = left + 1;
      const child = right < this.#items.length && this.#keyAt(right) < this.#keyAt(left) ? right : left;
      if (this.#keyAt(child) >= key) break;
      this.#put(this.#items[child] as T, place);
      place = child;
    }
    this.#put(item, place);
  }

  #put(item: T, place: number): void {
    this.#items[place] = item;
    this.#places.set(item, place);
  }

  #keyAt(place: number): number {
    return this.#keys.get(this.#items[place] as T) as number;
  }
}
