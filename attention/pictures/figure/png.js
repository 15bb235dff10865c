// Encodes cells as a PNG data URL. A canvas takes ten times as long, because it compresses every picture;
// this picture stays in the page, so its bytes are stored uncompressed, one for each cell.

const CRCS = Int32Array.from({ length: 256 }, (_, byte) => {
  for (let bit = 0; bit < 8; bit += 1) byte = byte & 1 ? (byte >>> 1) ^ 0xedb88320 : byte >>> 1;
  return byte;
});
const MAX_STORED = 65535; // bytes of an uncompressed block of a zlib stream
const MAX_SUMMED = 3800; // bytes before the checksum could overflow 32 bits

function crc32(bytes, from, to) {
  let sum = -1;
  for (let i = from; i < to; i += 1) sum = (sum >>> 8) ^ CRCS[(sum ^ bytes[i]) & 255];
  return ~sum;
}

// A chunk of a PNG: its length, its type, its content, its checksum.
function chunk(type, content) {
  const bytes = new Uint8Array(12 + content.length);
  const view = new DataView(bytes.buffer);
  view.setUint32(0, content.length);
  for (let i = 0; i < 4; i += 1) bytes[4 + i] = type.charCodeAt(i);
  bytes.set(content, 8);
  view.setInt32(8 + content.length, crc32(bytes, 4, 8 + content.length));
  return bytes;
}

// A zlib stream that stores `raw` uncompressed.
function zlibStored(raw) {
  const bytes = new Uint8Array(2 + 5 * Math.ceil(raw.length / MAX_STORED) + raw.length + 4);
  const view = new DataView(bytes.buffer);
  bytes.set([0x78, 1]);
  let at = 2;
  for (let from = 0; from < raw.length; from += MAX_STORED) {
    const part = raw.subarray(from, from + MAX_STORED);
    bytes[at] = Number(from + MAX_STORED >= raw.length); // whether it is the last block
    view.setUint16(at + 1, part.length, true);
    view.setUint16(at + 3, ~part.length, true);
    bytes.set(part, at + 5);
    at += 5 + part.length;
  }
  const [high, low] = adler32(raw);
  view.setUint16(at, high);
  view.setUint16(at + 2, low);
  return bytes;
}

// The Adler-32 checksum of a zlib stream: the sum of the partial sums, and the sum.
function adler32(raw) {
  let sum = 1;
  let sumOfSums = 0;
  for (let from = 0; from < raw.length; from += MAX_SUMMED) {
    const end = Math.min(from + MAX_SUMMED, raw.length);
    for (let i = from; i < end; i += 1) {
      sum += raw[i];
      sumOfSums += sum;
    }
    sum %= 65521;
    sumOfSums %= 65521;
  }
  return [sumOfSums, sum];
}

function base64(bytes) {
  if (bytes.toBase64) return bytes.toBase64();
  let text = "";
  for (let at = 0; at < bytes.length; at += 8192) text += String.fromCharCode(...bytes.subarray(at, at + 8192));
  return btoa(text);
}

// `shades` has for each cell, row by row, an index into the `colors` (red, green, blue), of which the first
// is transparent.
export function pngUrl(shades, columns, colors) {
  const rows = shades.length / columns;
  const head = new Uint8Array([0, 0, 0, 0, 0, 0, 0, 0, 8, 3, 0, 0, 0]); // one byte per cell, an index into the palette
  const view = new DataView(head.buffer);
  view.setUint32(0, columns);
  view.setUint32(4, rows);
  const raw = new Uint8Array(rows * (columns + 1)); // a 0 before each row: no filter
  for (let row = 0; row < rows; row += 1) {
    raw.set(shades.subarray(row * columns, (row + 1) * columns), row * (columns + 1) + 1);
  }
  const parts = [
    [137, 80, 78, 71, 13, 10, 26, 10],
    chunk("IHDR", head),
    chunk("PLTE", colors),
    chunk("tRNS", [0]),
    chunk("IDAT", zlibStored(raw)),
    chunk("IEND", []),
  ];
  const bytes = new Uint8Array(parts.reduce((size, part) => size + part.length, 0));
  let at = 0;
  for (const part of parts) {
    bytes.set(part, at);
    at += part.length;
  }
  return `data:image/png;base64,${base64(bytes)}`;
}
