/** `target` with some of its methods in another version. These call the target's own. */
export function wrapped<T extends object>(target: T, methods: Partial<T>): T {
  return new Proxy(target, {
    get: (object, key) => {
      const other = methods[key as keyof T];
      if (other !== undefined) return other;
      const own: unknown = Reflect.get(object, key, object);
      // Called on the proxy, a method could not reach the private fields of its object.
      return typeof own === 'function' ? own.bind(object) : own;
    },
  });
}
