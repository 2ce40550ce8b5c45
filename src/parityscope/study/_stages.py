"""The stages of an examination that ask whether there is a difference and where it begins; each adds what it found."""
