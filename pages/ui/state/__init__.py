"""The knobs: what stands in the address, the sidebar, the row above the maps."""
