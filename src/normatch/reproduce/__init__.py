"""The paper's tables and figures by one command: plans, runs, results as data, and the page that is made of them."""
