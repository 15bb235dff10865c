"""What the Heads page is compared with: three charts for each of twelve heads, all computed anew in every run."""

import math

import plotly.express as px
import streamlit as st
import torch

HEADS = 12

st.set_page_config(page_title="Multi-head attention", layout="wide")
st.title("Multi-head attention")
text = st.sidebar.text_area("Text", st.query_params.get("text", "the cat sat on the mat"))
temperature = st.sidebar.slider("Temperature", 0.05, 10.0, 1.0, 0.05, key="temperature")
d_model = st.sidebar.slider("d_model", 24, 384, 96, 24, key="d_model")
seed = st.sidebar.slider("Seed", 0, 1000, 0, key="seed")

torch.manual_seed(seed)
tokens = text.split()
vocabulary = {word: i for i, word in enumerate(sorted(set(tokens)))}
embedding = torch.nn.Embedding(len(vocabulary), d_model)
x = embedding(torch.tensor([vocabulary[word] for word in tokens])).detach()
words = [f"{i} {word}" for i, word in enumerate(tokens)]
d_k = d_model // HEADS
for head in range(HEADS):
    w_q, w_k, w_v = (torch.randn(d_model, d_k) / math.sqrt(d_model) for _ in range(3))
    scores = (x @ w_q) @ (x @ w_k).T / (math.sqrt(d_k) * temperature)
    weights = torch.softmax(scores, dim=-1)
    matrices = {"scores": scores, "weights": weights, "output": weights @ (x @ w_v)}
    for column, (name, matrix) in zip(st.columns(3), matrices.items(), strict=True):
        keys = None if name == "output" else words
        figure = px.imshow(matrix.numpy(), x=keys, y=words, title=f"{name} {head}", color_continuous_scale="Viridis")
        column.plotly_chart(figure, key=f"{name} {head}")
