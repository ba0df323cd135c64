"""The settings of the configuration page that have a function of their own."""
