"""What Sphinx builds the site with."""
