"""Files to take away: a route that makes each from the state in its address, and the links of the page to it."""
