// Unpacks the message from Python: the length of a JSON header (uint32), the header, then the arrays that it refers to.
//
// attention/pictures/message_contract.py declares the same keys for Python; tests/pictures/test_message_contract.py compares both, key by key.

/**
 * Everything that one component draws.
 * @typedef {object} Message
 * @property {Figure[]} figures
 * @property {object[]} names the labels of axes, which refer to them by index
 * @property {string[]} sources the distinct pictures below figures; an image of a layout refers to them by index
 * @property {?Live} live the data from which the page computes steps
 * @property {Control[]} controls the row above the maps
 * @property {?OverrideNote} override the note under that row where the source has its own formula
 * @property {?StepTab[]} strip the steps above that row
 * @property {?Line} line the chosen cell
 * @property {?Screen} screen the first screen above all of it
 * @property {?Object<string, string>} defaults the value of each knob that the address omits
 * @property {boolean} defer_rest whether the page requests the rest from Python after the maps are painted
 * @property {boolean} large whether letters are enlarged for a projector
 * @property {number} film_frame the serial number of a picture of a film
 * @property {string} session the session in which `film_frame` counts
 * @property {string} key the key of the component, which its user actions carry
 * @property {?number} act_number the number of the last user action that this answers; null where no action is possible
 */

/**
 * A figure as Plotly takes it; its first trace may have `live`, the name of the step that the page computes.
 * @typedef {{data: object[], layout: {meta: Meta}}} Figure
 */

/**
 * The metadata of a figure.
 * @typedef {object} Meta
 * @property {string} alt the text for screen readers
 * @property {string} step the step that is shown; empty for a chart
 * @property {number} [layer] the index of its layer
 * @property {Panel[]} panels where the matrix of each head lies; empty for a chart, which is not clickable
 * @property {string[]} [axes] the names of rows and columns
 * @property {string[]} [file] the parts of the name of a saved file
 * @property {?number[]} [chosen] the row and column where keyboard navigation starts
 * @property {object} [hidden_trace] the trace of hidden cells
 * @property {Blocks} [blocks] the pooling of a map that Python reduced to a window
 * @property {number[][]} [offsets] the offset of each number in its block
 * @property {number[][]} [overview] the block maxima of the whole map, where a part of it is sent
 * @property {{labelalias: Object<string, string>}} [rows] the labels of rows, where each cell of a mosaic is a block
 * @property {{labelalias: Object<string, string>}} [columns]
 * @property {PanelGrid} [panel_grid] where tokens lie in each panel, if the panels are heads over a picture
 * @property {number} [design_width] the width in pixels for which its height was chosen
 * @property {string[]} [metrics] of each panel, the metric that sorts the heads, in words with its number
 * @property {Grid} [grid] where tokens lie, if one row or column is drawn over a picture
 */

/**
 * The tokens of an axis that are drawn as a picture, each at its place.
 * @typedef {object} Grid
 * @property {number[][]} positions the position of the token in each cell, [row column]; -1 where there is none
 * @property {number} top the first row of the pictures; above it are lines of other tokens
 * @property {string} reads "query" for the row of one query, "key" for the column of one key or feature
 * @property {number} at that query, key or feature
 * @property {boolean} same whether the tokens of both axes are the same
 * @property {number[][]} [boxes] the boxes that tokens of the other axis predict: position, left, top, right, bottom, in cells, and 1 if it is an object
 */

/**
 * @typedef {object} Panel
 * @property {number} head
 * @property {number} x
 * @property {number} y
 * @property {number} rows
 * @property {number} columns
 * @property {number} block how many numbers the side of a cell covers
 * @property {number} layer
 */

/**
 * Where the tokens of one line of every head lie.
 * @typedef {object} PanelGrid
 * @property {number[][]} positions the position on the axis of the token at each cell of a panel, -1 where there is none
 * @property {string} reads "query" if the line is the row of a query, "key" if it is the column of a key
 * @property {number} at the position of that query or key
 */

/**
 * @typedef {object} Blocks
 * @property {number} down
 * @property {number} across
 * @property {number} top
 * @property {number} left
 * @property {number[]} window the drawn rows and columns [top, bottom, left, right)
 */

/**
 * The data from which the page computes scores, weights and outputs.
 * @typedef {object} Live
 * @property {number} head the current head
 * @property {Object<string, object>} heads by number: query, key and, where the page computes outputs, value
 * @property {Object<string, object>} inputs the matrices that these are projected from, where this form is smaller
 * @property {?number[][]} w_o
 * @property {string} score the score function, one of SCORES in kernel.js
 * @property {string} normalizer the normalizer from scores to weights, one of NORMALIZERS there
 * @property {?number} cap
 * @property {number} divisor
 * @property {number} temperature
 * @property {object} mask the rule, see `visibleSpan` in kernel.js
 * @property {string[]} computable the steps that the page can compute
 */

/**
 * @typedef {object} Control
 * @property {string} kind slider, choice, whole or switch
 * @property {string} name the key of the knob
 * @property {string} label
 * @property {string} help
 * @property {string} value as in the address
 * @property {number} [low]
 * @property {number} [high]
 * @property {string[]} [options]
 * @property {string[]} [buttons] the usual options, side by side
 * @property {string} [more] the label of the menu of the other options; without it they cannot be chosen
 * @property {number[]} [presets] numbers that are chosen from a list; any other is typed
 * @property {Object<string, string>} [option_names] the labels of options that differ from their values
 * @property {Object<string, string[]>} [when] the values of other knobs for which it applies
 */

/**
 * A note about the source's own formula.
 * @typedef {object} OverrideNote
 * @property {string} text
 * @property {object} reset the knobs that undo an override; empty if there is none
 * @property {boolean} changed whether something inside the model is changed
 */

/**
 * A step in the strip.
 * @typedef {object} StepTab
 * @property {string} name
 * @property {string} symbol
 * @property {string} shape
 * @property {string} help
 * @property {boolean} chosen
 * @property {string} [sums] the sums of its rows
 * @property {string} [view] the view that a click sets besides the step
 * @property {string} [step] the step that a click chooses, if not `name`
 */

/**
 * The chosen cell.
 * @typedef {object} Line
 * @property {string} step
 * @property {string[]} steps the steps that can be chosen
 * @property {object[]} sides its query and its key
 * @property {string} shown its number
 * @property {string} sign
 * @property {string} short its arithmetic
 * @property {object[]} from the cells that it was computed from
 */

/**
 * The numbers of one head for the first screen, see attention/pictures/first_screen.py.
 * @typedef {object} Screen
 * @property {string[]} queries the words of the queries
 * @property {string[]} keys those of the keys, where they are others
 * @property {string} where the model and the layer, in words
 * @property {string} why why the chosen query may look at the chosen key
 * @property {boolean} random whether the weights are random
 * @property {?Sentence} sentence what typing changes
 * @property {number} layer
 * @property {number} head
 * @property {number} q the chosen query
 * @property {number} k the chosen key
 * @property {number} column the chosen number of the output
 * @property {string} step the chosen step, which may be none of the terms
 * @property {?number} show the moment of the film, from 0 to 5; null for the chosen step at rest
 * @property {Term[]} terms
 * @property {object} vectors query, key and value: all `rows`; of many tokens a `strip` of blocks and the rows `at` some positions
 * @property {?number[][]} hidden 1 for a cell that the mask hides, of few tokens
 * @property {string} hides what hides the chosen key; empty if it is in sight
 * @property {string} score
 * @property {string} normalizer
 * @property {number} divisor
 * @property {number} temperature
 * @property {string} mask
 * @property {Change[]} [changes] the knobs that are not as the source opened
 * @property {object} [reset] the knobs that undo them
 * @property {Object<string, number>} [fixed] sizes that the model fixes
 * @property {Array<Array<any>>} [spans] the named stretches of the queries: name, first and last position
 * @property {string[]} [sequences] of a source with several sequences, the beginning of each
 * @property {number} [sequence] the shown one
 * @property {boolean} [locked] whether nothing but the pair can be chosen
 * @property {Compared} [compared] the two states, if there are two
 * @property {boolean} [maskable] whether a click may hide a cell
 */

/**
 * Two states, of which the screen shows one, or their difference.
 * @typedef {object} Compared
 * @property {string} shown "A", "B" or "difference"
 * @property {string[]} sides those of the three that can be shown
 * @property {string} reason why the difference cannot; empty if it can
 * @property {number[][]} [a] the shares in A, of many tokens those of the chosen query alone
 * @property {number[][]} [b] those in B
 */

/**
 * The text above a first screen.
 * @typedef {object} Sentence
 * @property {string} text as typed
 * @property {string} goes_to what reads typed text
 * @property {boolean} slow whether the answer takes longer than a second
 */

/**
 * A knob that is not as the source opened.
 * @typedef {object} Change
 * @property {string} label
 * @property {string} before
 * @property {string} after
 */

/**
 * A term of the formula.
 * @typedef {object} Term
 * @property {string} name match, scale, hide, share or collect
 * @property {string} step the step that it shows
 * @property {string} shown the number of the chosen pair
 * @property {string} sign
 * @property {string} short its arithmetic
 * @property {number} [limit] where its colours end; without it and `z` the page computes the matrix
 * @property {number[][]} [z] its matrix, of many tokens in blocks
 * @property {number[][]} [offsets] the offset of each number in its block
 * @property {number[]} [block] rows and columns of a block
 * @property {number[]} [row] the row of the chosen query, where there are blocks
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

let plotly; // the promise of the page's only Plotly

// Loads Plotly's script, which lies beside this one, once; a page that contains it needs no file.
export function loadPlotly() {
  if (window.Plotly) return Promise.resolve(window.Plotly);
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
  const maps = message.figures.filter(({ layout }) => layout.meta.panels.length);
  for (const { data } of maps) {
    if (data[0]?.z?.gaps) data[0].z = difference(maps, data[0].z.gaps);
  }
  for (const { layout } of message.figures) {
    for (const image of layout.images ?? []) image.source = message.sources[image.source];
  }
  const labels = message.names.map(expandLabels);
  for (const { layout } of message.figures) {
    for (const axis of [layout.xaxis, layout.yaxis, layout.meta.rows, layout.meta.columns]) {
      if (axis && "labelalias" in axis) axis.labelalias = labels[axis.labelalias];
    }
  }
  return message;
}

// The second map minus the first; each byte of `gaps` has eight cells, from the lowest bit on.
function difference([first, second], gaps) {
  return first.data[0].z.map((row, i) =>
    row.map((number, j) => {
      const bit = i * row.length + j;
      return (gaps[bit >> 3] >> (bit & 7)) & 1 ? NaN : second.data[0].z[i][j] - number;
    }),
  );
}

// The labels of an axis: complete, or composed of their position and distinct words.
function expandLabels({ all, words, index }) {
  return all ?? Object.fromEntries(Array.from(index, (word, i) => [i, `${i} ${words[word]}`.trim()]));
}
