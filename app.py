import streamlit as st
from attention import *
from attention import plots
from attention.explain import Cell
from pages.ui import show
st.set_page_config(layout="wide")
t=st.slider("temperature",0.05,10.,1.,0.05)
mask=st.selectbox("m",["causal","none"])
tr=TypedText("the cat sat on the mat", AttentionConfig(mask=mask,d_model=64,temperature=t)).trace()
c=st.session_state.get("c",("weights",0,0))
def cl(step,x,y): st.session_state["c"]=(step,x,y)
show.figures([plots.heatmap(tr,s,chosen=Cell(c[0],0,c[2],c[1])) for s in ("scores","weights","output")], "main", cl)
show.figures([plots.heads(tr,"weights",chosen=Cell(c[0],0,c[2],c[1]))], "heads", cl)
st.write(c)
