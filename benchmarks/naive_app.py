"""The app that the benchmarks compare with, as the author of a notebook would write it.

A text and three sliders; in every run everything is computed anew, and three `px.imshow` go to
`st.plotly_chart`. The settings are Streamlit's defaults. Only the labels are better than in most such
apps: they are numbered, since Plotly would draw equal words as one row.
"""

import math

import plotly.express as px
import streamlit as st
import torch

st.set_page_config(page_title="Self-attention", layout="wide")
st.title("Self-attention")
text = st.sidebar.text_area("Text", st.query_params.get("text", "the cat sat on the mat"))
temperature = st.sidebar.slider("Temperature", 0.05, 10.0, 1.0, 0.05, key="temperature")
d_model = st.sidebar.slider("d_model", 16, 256, 64, 16, key="d_model")
seed = st.sidebar.slider("Seed", 0, 1000, 0, key="seed")

torch.manual_seed(seed)
tokens = text.split()
vocabulary = {word: i for i, word in enumerate(sorted(set(tokens)))}
embedding = torch.nn.Embedding(len(vocabulary), d_model)
x = embedding(torch.tensor([vocabulary[word] for word in tokens])).detach()
w_q, w_k, w_v = (torch.randn(d_model, d_model) / math.sqrt(d_model) for _ in range(3))
scores = (x @ w_q) @ (x @ w_k).T / (math.sqrt(d_model) * temperature)
weights = torch.softmax(scores, dim=-1)
output = weights @ (x @ w_v)

words = [f"{i} {word}" for i, word in enumerate(tokens)]
for column, name, matrix in zip(st.columns(3), ("scores", "weights", "output"), (scores, weights, output), strict=True):
    keys = words if matrix.shape[1] == len(words) and name != "output" else None
    figure = px.imshow(matrix.numpy(), x=keys, y=words, title=name, aspect="auto", color_continuous_scale="Viridis")
    column.plotly_chart(figure, key=name)
