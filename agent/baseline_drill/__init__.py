"""Are comparisons right? Engines that are alike, slower or smaller, held against each other."""
