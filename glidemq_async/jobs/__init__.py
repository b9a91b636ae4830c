"""Jobs as users and handlers see them."""
