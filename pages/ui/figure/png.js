// A picture as the address of a PNG. A canvas takes ten times as long, since it squeezes every picture small;
// this one stays in the page, so its bytes are stored as they are.

const CRCS = Int32Array.from({ length: 256 }, (_, byte) => {
  for (let bit = 0; bit < 8; bit += 1) byte = byte & 1 ? (byte >>> 1) ^ 0xedb88320 : byte >>> 1;
  return byte;
});
const STORED = 65535; // bytes that one block of a zlib stream holds at most

function crc(bytes, from, to) {
  let sum = -1;
  for (let i = from; i < to; i += 1) sum = (sum >>> 8) ^ CRCS[(sum ^ bytes[i]) & 255];
  return ~sum;
}

// `add(kind, size)` begins a chunk and gives where its content stands; `end` closes it with its check.
function chunks(bytes, view) {
  let at = 8;
  bytes.set([137, 80, 78, 71, 13, 10, 26, 10]);
  return (kind, size, fill) => {
    view.setUint32(at, size);
    for (let i = 0; i < 4; i += 1) bytes[at + 4 + i] = kind.charCodeAt(i);
    fill(at + 8);
    view.setInt32(at + 8 + size, crc(bytes, at + 4, at + 8 + size));
    at += 12 + size;
  };
}

const base64 = (bytes) => {
  if (bytes.toBase64) return bytes.toBase64();
  let text = "";
  for (let at = 0; at < bytes.length; at += 8192) text += String.fromCharCode(...bytes.subarray(at, at + 8192));
  return btoa(text);
};

// `pixels` are the bytes red, green, blue, opacity of one cell after the other.
export function png(pixels, columns, rows) {
  const line = 4 * columns, raw = new Uint8Array(rows * (line + 1)); // a 0 before each line: nothing is filtered
  for (let row = 0; row < rows; row += 1) raw.set(pixels.subarray(row * line, (row + 1) * line), row * (line + 1) + 1);
  const blocks = Math.ceil(raw.length / STORED), size = 2 + 5 * blocks + raw.length + 4;
  const bytes = new Uint8Array(8 + 25 + 12 + size + 12), view = new DataView(bytes.buffer), chunk = chunks(bytes, view);
  chunk("IHDR", 13, (at) => {
    view.setUint32(at, columns);
    view.setUint32(at + 4, rows);
    bytes.set([8, 6, 0, 0, 0], at + 8); // eight bits of red, green, blue and opacity
  });
  chunk("IDAT", size, (at) => {
    bytes.set([0x78, 1], at);
    let place = at + 2, a = 1, b = 0;
    for (let from = 0; from < raw.length; from += STORED) {
      const part = raw.subarray(from, from + STORED);
      bytes[place] = Number(from + STORED >= raw.length);
      view.setUint16(place + 1, part.length, true);
      view.setUint16(place + 3, ~part.length, true);
      bytes.set(part, place + 5);
      place += 5 + part.length;
    }
    for (let from = 0; from < raw.length; from += 3800) { // more bytes could overflow 32 bits
      const until = Math.min(from + 3800, raw.length);
      for (let i = from; i < until; i += 1) { a += raw[i]; b += a; }
      a %= 65521;
      b %= 65521;
    }
    view.setUint16(place, b);
    view.setUint16(place + 2, a);
  });
  chunk("IEND", 0, () => {});
  return `data:image/png;base64,${base64(bytes)}`;
}
