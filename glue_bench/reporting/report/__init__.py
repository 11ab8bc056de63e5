"""An experiment as one page to show: its parts, in sentences, tables and figures that stand elsewhere too."""
