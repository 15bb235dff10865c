"""The main file for Streamlit Community Cloud: serves the same app as `streamlit run app.py`.

The Cloud installs the requirements.txt that lies beside its main file; the one in this folder names torch's CPU build.
"""

import sys
from pathlib import Path

import streamlit as st

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))  # Streamlit adds the folder of the main file only
st.secrets.load_if_toml_exists()  # sets LAB_… in the environment, which the next import reads

from pages.ui.server import application  # noqa: E402

app = st.App(ROOT / "app.py", **application.parts())
