"""The main file for Streamlit Community Cloud: serves the same app as `streamlit run app.py`.

The Cloud installs the requirements.txt next to the main file. The one in this folder has torch's CPU build.
"""

import sys
from pathlib import Path

import streamlit as st

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))  # Streamlit adds only the folder of the main file
st.secrets.load_if_toml_exists()  # sets LAB_… in the environment, which the next import reads

from pages.ui import application  # noqa: E402

app = st.App(ROOT / "app.py", **application.parts())
