// A 53-bit running hash, for telling equal structures apart from different ones.

export class Hash {
  private a = 0x811c9dc5;
  private b = 0x1b873593;

  number(value: number): this {
    this.a = Math.imul(this.a ^ (value | 0), 0x01000193);
    this.b = Math.imul((this.b ^ value) + 0x7f4a7c15, 0x85ebca6b);
    this.b ^= this.b >>> 13;
    return this;
  }

  text(value: string): this {
    for (let i = 0; i < value.length; i++) this.number(value.charCodeAt(i));
    return this.number(value.length);
  }

  /** Mix in another hash, as `end` gave it. */
  hash(value: number): this {
    return this.number(value % 0x100000000).number(Math.floor(value / 0x100000000));
  }

  end(): number {
    return (this.a >>> 0) * 0x200000 + (this.b >>> 11);
  }
}
