"""Workers that find, admit and lose each other without a server: links, members and edges."""
