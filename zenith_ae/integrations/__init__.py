"""zenith-ae inside other programs; each module needs the library that it is named after."""
