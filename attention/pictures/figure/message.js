// What Python sends: the length of a JSON header (uint32), the header, then the arrays it points to.
//
// attention/pictures/contract.py declares the same for Python; tests/test_message_contract.py holds both to it, key by key.

/**
 * All that is drawn by one component.
 * @typedef {object} Message
 * @property {Figure[]} figures
 * @property {object[]} names the names along axes, which point to them by their number
 * @property {?Live} live what the page makes steps from
 * @property {Control[]} controls the row above the maps
 * @property {?Own} own what stands under that row where the source brings its own formula
 * @property {?Tab[]} strip the steps above that row
 * @property {?Line} line the chosen cell
 * @property {?Object<string, string>} defaults what each knob of the address is where the address does not name it
 * @property {boolean} rest whether Python draws the maps first, and is asked for the rest when they are painted
 * @property {boolean} large whether it is projected
 * @property {number} act how many pictures of a film there have been: each differs from the last
 * @property {string} session whose pictures are counted
 * @property {string} key of the component, for what is turned and clicked in it
 * @property {?number} number of the last turn or click that this answers; null where nothing can be turned or clicked
 */

/**
 * A figure as Plotly takes it; its first trace may have `live`, the step that the page makes by itself.
 * @typedef {{data: object[], layout: {meta: Meta}}} Figure
 */

/**
 * What a figure says of itself.
 * @typedef {object} Meta
 * @property {string} alt a sentence for who cannot see it
 * @property {string} step what is shown; empty for a chart
 * @property {number} [layer] the number of its layer
 * @property {Panel[]} panels where the matrix of each head lies; empty for a chart, which takes no clicks
 * @property {string[]} [axes] what rows and columns are called
 * @property {string[]} [file] the parts of the name under which it is saved
 * @property {?number[]} [chosen] the row and column where the keyboard begins
 * @property {object} [ground] the trace that lies over hidden cells
 * @property {Blocks} [blocks] of a map that Python has cut to a window
 * @property {number[][]} [at] where in its block each number stands
 * @property {{labelalias: Object<string, string>}} [rows] the names of rows, where a cell is a block of a mosaic
 * @property {{labelalias: Object<string, string>}} [columns]
 * @property {number} [wide] the pixels for which its height was chosen
 */

/**
 * @typedef {object} Panel
 * @property {number} head
 * @property {number} x
 * @property {number} y
 * @property {number} rows
 * @property {number} columns
 * @property {number} block how many numbers a cell's side stands for
 * @property {number} layer
 */

/**
 * @typedef {object} Blocks
 * @property {number} down
 * @property {number} across
 * @property {number} top
 * @property {number} left
 * @property {number[]} window the rows and columns [top, bottom, left, right) that were cut out
 */

/**
 * What the page makes scores, weights and outputs from.
 * @typedef {object} Live
 * @property {number} head the one that is shown
 * @property {Object<string, object>} heads by number: query, key and, where the page makes outputs, value
 * @property {Object<string, object>} inputs what these are made from, where a product is smaller than they are
 * @property {?number[][]} w_o
 * @property {string} score how a query is compared with a key, one of SCORES in kernel.js
 * @property {string} share how weights come from scores, one of SHARES there
 * @property {?number} cap
 * @property {number} divisor
 * @property {number} temperature
 * @property {object} mask the rule, see `span` in kernel.js
 * @property {string[]} made the steps that the page can make
 */

/**
 * @typedef {object} Control
 * @property {string} kind slider, choice, whole or switch
 * @property {string} name the knob
 * @property {string} label
 * @property {string} help
 * @property {string} value as in the address
 * @property {number} [low]
 * @property {number} [high]
 * @property {string[]} [options]
 * @property {string[]} [buttons] the usual options, side by side
 * @property {number[]} [offered] numbers that are picked from a list; any other is typed
 * @property {Object<string, string>} [names] what options are called where they do not say it themselves
 * @property {Object<string, string[]>} [only] the values of other knobs that it makes sense for
 */

/**
 * What is said of a formula that the source brings along.
 * @typedef {object} Own
 * @property {string} said
 * @property {object} back the knobs that undo what was turned; none where nothing was
 * @property {boolean} changed whether something inside the model is changed
 */

/**
 * A step in the strip.
 * @typedef {object} Tab
 * @property {string} name
 * @property {string} symbol
 * @property {string} shape
 * @property {string} help
 * @property {boolean} chosen
 * @property {string} [sums] what its rows sum to
 * @property {string} [view] what a click turns besides the step
 * @property {string} [step] which one a click picks, if not `name`
 */

/**
 * The chosen cell.
 * @typedef {object} Line
 * @property {string} step
 * @property {string[]} steps those that can be chosen
 * @property {object} at its step, row and column
 * @property {object[]} sides its query and its key
 * @property {string} shown its number
 * @property {string} sign
 * @property {string} short its arithmetic
 * @property {object[]} from the cells it was made from
 */

const ARRAYS = {
  f4: Float32Array,
  f8: Float64Array,
  u1: Uint8Array,
  i1: Int8Array,
  i2: Int16Array,
  u2: Uint16Array,
  i4: Int32Array,
  u4: Uint32Array,
};

let plotly; // one promise for the page: Plotly's script is loaded once

// Its script lies beside this one.
export function loadPlotly() {
  plotly ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = new URL("./plotly.js", import.meta.url);
    script.onload = () => resolve(window.Plotly);
    script.onerror = () => {
      plotly = undefined;
      reject(new Error("Plotly's script did not load"));
    };
    document.head.append(script);
  });
  return plotly;
}

/** @returns {Message} */
export function unpack(bytes) {
  const buffer = bytes.slice().buffer; // a copy starts at 0, so that typed arrays are aligned
  const headerSize = new DataView(buffer).getUint32(0, true);
  const start = 4 + headerSize;
  const revive = (_, value) => {
    if (!value || !value.array) return value;
    const { dtype, at, shape } = value.array;
    const size = shape.reduce((product, n) => product * n, 1);
    const flat = new ARRAYS[dtype](buffer, start + at, size);
    if (shape.length === 1) return flat;
    return Array.from({ length: shape[0] }, (__, row) => flat.subarray(row * shape[1], (row + 1) * shape[1]));
  };
  const message = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, headerSize)), revive);
  for (const { data } of message.figures) {
    if (data[0]?.z?.gaps) data[0].z = difference(message.figures, data[0].z.gaps);
  }
  const names = message.names.map(spelled);
  for (const { layout } of message.figures) {
    for (const axis of [layout.xaxis, layout.yaxis, layout.meta.rows, layout.meta.columns]) {
      if (axis && "labelalias" in axis) axis.labelalias = names[axis.labelalias];
    }
  }
  return message;
}

// What the second map has less what the first has; in each byte of the gaps eight cells, from the lowest bit on.
function difference([one, other], gaps) {
  return one.data[0].z.map((row, i) =>
    row.map((number, j) => {
      const at = i * row.length + j;
      return (gaps[at >> 3] >> (at & 7)) & 1 ? NaN : other.data[0].z[i][j] - number;
    }),
  );
}

// The names along an axis: as they are, or from each word once, with their numbers before them.
function spelled({ all, words, index }) {
  return all ?? Object.fromEntries(Array.from(index, (word, i) => [i, `${i} ${words[word]}`.trim()]));
}
