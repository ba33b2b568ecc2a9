"""What people do with the model: each room is an application behind one wall, and the model knows none of them."""
