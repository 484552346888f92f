"""Server-side apply and managed fields: who set which field, and what follows from it. `managed` is the way in."""
